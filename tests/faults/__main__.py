"""`make faults`: every fault, what a scraper saw, and whether the promise was held. An argument filters by name."""

import asyncio
import sys

from tests.faults.catalogue import FAULTS
from tests.faults.judge import judge_all, table

if __name__ == "__main__":
    wanted = " ".join(sys.argv[1:])
    verdicts = asyncio.run(judge_all(fault for fault in FAULTS if wanted in fault.name))
    print(table(verdicts))
    broken = sum(bool(found.broken) for found in verdicts)
    print(f"\n{len(verdicts) - broken} of {len(verdicts)} promises held")
    sys.exit(1 if broken or not verdicts else 0)
