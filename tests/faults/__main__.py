"""`make faults`: every fault, what a scraper saw, and whether the promise was held. An argument filters by name."""

import asyncio
import sys

from tests.faults.catalogue import FAULTS
from tests.faults.endings import ENDINGS
from tests.faults.judge import Verdict, judge_all, run_alone, table
from tests.faults.load import LOADS


async def everything(wanted: str) -> list[Verdict]:
    found = await judge_all(fault for fault in FAULTS if wanted in fault.name)
    return found + [await run_alone(case) for case in (*ENDINGS, *LOADS) if wanted in case.__name__]


if __name__ == "__main__":
    wanted = " ".join(sys.argv[1:])
    verdicts = asyncio.run(everything(wanted))
    print(table(verdicts))
    broken = sum(bool(found.broken) for found in verdicts)
    print(f"\n{len(verdicts) - broken} of {len(verdicts)} promises held")
    sys.exit(1 if broken or not verdicts else 0)
