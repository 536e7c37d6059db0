"""The physics of one H100 SXM: what power, heat and clocks do under a load. Pure; time is what the caller says.

A load holds until the next one. In between, power stands still, so that energy is exactly power times time: power is
in whole milliwatts, time in whole nanoseconds, energy in whole picojoules. Temperature lags power.

The reasons for lowered clocks are NVML's bits (nvml.h, nvmlClocksEventReasons).
"""

import math
from dataclasses import dataclass, field

GPU_IDLE = 0x1
POWER_CAP = 0x4
SW_THERMAL = 0x20
HW_THERMAL = 0x40
LIMIT_MW = 700_000
PJ_PER_MJ = 1_000_000_000
_IDLE_MW = 70_000
_FULL_MW = 740_000  # what the GPU would draw at full activity: a little more than its limit
_HW_THERMAL_MW = 350_000
_SW_THERMAL_MW = 500_000
_BOOST_MHZ, _IDLE_MHZ = 1980, 345
# a degree warmer for every so many milliwatts, and how long (seconds) 63 % of a change of temperature take
_MW_PER_DEGREE, _LAG_SECONDS = 14_000.0, 45.0
_MEMORY_MW_PER_DEGREE, _MEMORY_LAG_SECONDS = 12_000.0, 60.0
# the driver lowers the clocks above the first, the hardware above the second, until it is cooler than the third
_SLOWDOWN, _HW_SLOWDOWN, _COOL_AGAIN = 87.0, 92.0, 84.0
AIR_CELSIUS = 26.0

# The family of time that a reason's bit makes grow. GPU_IDLE stands for low utilization.
VIOLATIONS = {
    "LOW_UTIL_VIOLATION": GPU_IDLE,
    "POWER_VIOLATION": POWER_CAP,
    "THERMAL_VIOLATION": SW_THERMAL | HW_THERMAL,
}
# as dcgm-exporter names them in DCGM_EXP_CLOCK_EVENTS_TOTAL
EVENTS = {"gpu_idle": GPU_IDLE, "power_cap": POWER_CAP, "sw_thermal": SW_THERMAL, "hw_thermal": HW_THERMAL}


@dataclass(slots=True, kw_only=True)
class Board:
    """One GPU's state. `reasons` and `power_mw` hold from the last `load` on.

    `energy_pj` and `violations_ns` never fall until the driver is reloaded. `events` counts how often each reason set
    in.
    """

    activity: float = 0.0
    power_mw: int = _IDLE_MW
    energy_pj: int = 0
    celsius: float = AIR_CELSIUS + _IDLE_MW / _MW_PER_DEGREE
    memory_celsius: float = AIR_CELSIUS + 4 + _IDLE_MW / _MEMORY_MW_PER_DEGREE
    sm_clock: int = _IDLE_MHZ
    reasons: int = GPU_IDLE
    air: float = AIR_CELSIUS
    violations_ns: dict[str, int] = field(default_factory=lambda: dict.fromkeys(VIOLATIONS, 0))
    events: dict[str, int] = field(default_factory=lambda: dict.fromkeys(EVENTS, 0))

    def load(self, activity: float, air: float = AIR_CELSIUS) -> None:
        """From now on the GPU is this active (0 to 1), and is cooled by air of this temperature (°C)."""
        self.activity, self.air = activity, air
        wanted = _IDLE_MW + round((_FULL_MW - _IDLE_MW) * activity)
        self.power_mw = min(wanted, self._most_mw())
        reasons = 0 if activity else GPU_IDLE
        if self.power_mw < wanted:
            reasons = self._thermal() or POWER_CAP
        for name, bit in EVENTS.items():
            self.events[name] += bool(reasons & bit & ~self.reasons)
        self.reasons = reasons
        # power goes with nearly the third power of the clock
        slower = ((self.power_mw - _IDLE_MW) / (wanted - _IDLE_MW)) ** 0.4 if self.power_mw < wanted else 1.0
        self.sm_clock = round(_BOOST_MHZ * slower / 15) * 15 if activity else _IDLE_MHZ

    def spend(self, nanoseconds: int) -> None:
        """Let time pass under the present load."""
        self.energy_pj += self.power_mw * nanoseconds
        for name in self.violations_ns:
            self.violations_ns[name] = self.violation(name, nanoseconds)
        self._warm(nanoseconds / 1e9)

    def warm_up(self) -> None:
        """The present load has lasted so long that the GPU is as warm as it gets."""
        self._warm(math.inf)

    def energy_mj(self, later_ns: int = 0) -> int:
        """Energy since the driver was loaded, so many nanoseconds after the last `spend`, in whole millijoules."""
        return (self.energy_pj + self.power_mw * later_ns) // PJ_PER_MJ

    def violation(self, name: str, later_ns: int = 0) -> int:
        """Nanoseconds of a family of VIOLATIONS, so many nanoseconds after the last `spend`."""
        return self.violations_ns[name] + (later_ns if self.reasons & VIOLATIONS[name] else 0)

    def reload(self) -> None:
        """The driver is loaded anew: what it counts begins at 0."""
        self.energy_pj = 0
        self.violations_ns = dict.fromkeys(VIOLATIONS, 0)

    def _warm(self, seconds: float) -> None:
        warmest = self.air + self.power_mw / _MW_PER_DEGREE
        self.celsius -= (warmest - self.celsius) * math.expm1(-seconds / _LAG_SECONDS)
        warmest = self.air + 4 + self.power_mw / _MEMORY_MW_PER_DEGREE
        self.memory_celsius -= (warmest - self.memory_celsius) * math.expm1(-seconds / _MEMORY_LAG_SECONDS)

    def _thermal(self) -> int:
        was_hot = self.reasons & (SW_THERMAL | HW_THERMAL)
        if self.celsius >= _HW_SLOWDOWN:
            return HW_THERMAL
        return SW_THERMAL if self.celsius >= (_COOL_AGAIN if was_hot else _SLOWDOWN) else 0

    def _most_mw(self) -> int:
        return {0: LIMIT_MW, SW_THERMAL: _SW_THERMAL_MW, HW_THERMAL: _HW_THERMAL_MW}[self._thermal()]
