"""Replaces a user's names in a recording before any of it is written. Pure.

`replacing.py` begins: it walks over a recording twice. The first walk learns the names at the places that have a
structure (the kubelet's List, objects of Kubernetes, labels of pages, JSON); the second writes new ones everywhere,
also into texts.

- disguise.py: ids keep their form: UUIDs, ids of containers, serials, addresses;
- name_table.py: the names that were learned, and the new ones;
- common_words.py: words that are nobody's names;
- names_in_texts.py: names and ids that stand in texts;
- names_in_places.py: where a text says that a common word is a name;
- names_in_fields.py: what a text is by the name of its label, or of its field in JSON;
- names_in_pages.py, names_in_messages.py, names_in_objects.py, names_in_files.py and names_in_settings.py: what the
  form of a place says about its texts.

What becomes of a text:

- Names of nodes, namespaces, pods, workloads, claims, requests, containers, users, processes and hosts, and values of
  labels, become their kind and a number: namespace-2. The numbers are in the order of the old names.
- The name of a pod, workload or claim keeps its ending as a kind: an ordinal (-0), the node of a static pod, the
  letters that Kubernetes has generated (others, as many), the minute of a CronJob. The part before is one name for
  the pod, its ReplicaSet and its Deployment: all of them are pod-7.
- Ids and serials become others of the same form and length. What began alike still does, so a shortened id is the
  beginning of the new one.
- IP addresses become such of benchmarks' and documentation's networks. Loopback stays.
- Names of labels and of resources are replaced word by word, so that patterns in settings and the labels that pages
  make of them (label_…) fit as before.
- A name that is one word of the vocabulary, such as search or main, is replaced where its place says that it is a
  name: a label, a field, search/main, "the pod main". As an ordinary word it stays. Names that every cluster has stay
  everywhere, such as default and monitoring, and so do names on which a decision rests.
- Facts of hardware stay: models, PCI addresses, versions, numbers of devices, MIG profiles.
- Texts of the program stay, but for the names and ids in them, and for words of four letters or more that are a part
  of some name. Paths in them, and fields that nobody knows, keep only words of the vocabulary.
- Secrets (authorization, keys, passwords in URLs) and environments are left out, though nobody should record them.
"""
