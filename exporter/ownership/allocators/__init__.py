"""What allocators write on pods: which devices a container has, and which parts. Pure.

An allocator is a scheduler with a device plugin of its own, whose device ids do not say which device a container has.

- allocator_table.py: the allocators, the ids that are their tokens, and the annotations with the choice of each;
- said.py: what an annotation says, or why it cannot be read;
- separated.py, json_words.py: the grammars of annotations;
- positions.py: the containers that the entries of an annotation belong to;
- users.py: the allocators of a user's rule file;
- gpu_groups.py: KAI Scheduler and Run:ai, whose pods share the GPU of a reservation pod.

Whoever makes a pod can write its annotations. So no text may raise anything but `Unreadable`, and none may cost much
time: a text that is longer than `said.LONGEST` is not read.
"""
