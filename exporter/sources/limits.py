"""The most that is remembered by sources that are imported only where they are used: the limits are shown before."""

# Many times what runs on the GPUs of one node. 2,000 take some 20 ms (make bench), on a thread.
MOST_PROCESSES = 2_000
# A kubelet takes 110 pods by default, and keeps the logs of containers that have ended for a while.
MOST_LINKS = 10_000
