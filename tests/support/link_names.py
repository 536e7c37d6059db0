"""The names that generations of dcgm-exporter and of GPUs have for counters of links' errors."""

from collections.abc import Mapping

from exporter.dcgm.links import LinkErrorKind

LEGACY = "DCGM_FI_DEV_NVLINK_REPLAY_ERROR"
# what each generation of dcgm-exporter calls the same counter
TOTALS: Mapping[str, Mapping[LinkErrorKind, str]] = {
    "3.3": {
        "replay": f"{LEGACY}_COUNT_TOTAL",
        "recovery": "DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL",
    },
    "4.6 to 4.9": {
        "replay": f"{LEGACY}_TOTAL",
        "recovery": "DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_TOTAL",
        "ecc_data": "DCGM_FI_DEV_NVLINK_ECC_ERROR_TOTAL",
    },
    "Hopper, 4.4": {
        "replay": "DCGM_FI_DEV_NVLINK_ERROR_DL_REPLAY",
        "recovery": "DCGM_FI_DEV_NVLINK_ERROR_DL_RECOVERY",
    },
    "Hopper, 4.6 to 4.9": {
        "replay": "DCGM_FI_DEV_NVLINK_REPLAY_TOTAL",
        "recovery": "DCGM_FI_DEV_NVLINK_RECOVERY_TOTAL",
    },
    "Blackwell, 4.4": {
        "recovery": "DCGM_FI_DEV_NVLINK_COUNT_LINK_RECOVERY_EVENTS",
        "recovery_failed": "DCGM_FI_DEV_NVLINK_COUNT_LINK_RECOVERY_FAILED_EVENTS",
        "rx_error": "DCGM_FI_DEV_NVLINK_COUNT_RX_ERRORS",
        "malformed_packet": "DCGM_FI_DEV_NVLINK_COUNT_RX_MALFORMED_PACKET_ERRORS",
        "buffer_overrun": "DCGM_FI_DEV_NVLINK_COUNT_RX_BUFFER_OVERRUN_ERRORS",
        "remote": "DCGM_FI_DEV_NVLINK_COUNT_RX_REMOTE_ERRORS",
        "general": "DCGM_FI_DEV_NVLINK_COUNT_RX_GENERAL_ERRORS",
        "link_integrity": "DCGM_FI_DEV_NVLINK_COUNT_LOCAL_LINK_INTEGRITY_ERRORS",
        "link_down": "DCGM_FI_DEV_NVLINK_PPCNT_PHYSICAL_LINK_DOWN_COUNTER",
        "ecc_data": "DCGM_FI_DEV_NVLINK_ECC_DATA_ERROR_COUNT_TOTAL",
    },
    "Blackwell, 4.6 to 4.9": {
        "recovery": "DCGM_FI_DEV_NVLINK_RECOVERY_EVENT_TOTAL",
        "recovery_failed": "DCGM_FI_DEV_NVLINK_RECOVERY_FAILED_TOTAL",
        "rx_error": "DCGM_FI_DEV_NVLINK_RX_ERROR_TOTAL",
        "malformed_packet": "DCGM_FI_DEV_NVLINK_RX_PACKET_MALFORMED_TOTAL",
        "buffer_overrun": "DCGM_FI_DEV_NVLINK_RX_PACKET_DROPPED_TOTAL",
        "remote": "DCGM_FI_DEV_NVLINK_RX_REMOTE_ERROR_TOTAL",
        "general": "DCGM_FI_DEV_NVLINK_RX_GENERAL_ERROR_TOTAL",
        "link_integrity": "DCGM_FI_DEV_NVLINK_INTEGRITY_ERROR_TOTAL",
        "link_down": "DCGM_FI_DEV_NVLINK_PPCNT_PHYSICAL_LINK_DOWN_TOTAL",
        "ecc_data": "DCGM_FI_DEV_NVLINK_ECC_ERROR_TOTAL",
    },
}
OF_LINK_5: Mapping[str, tuple[str, str]] = {
    "3.3 to 4.5": (f"{LEGACY}_COUNT_L5", ""),
    "4.6": (f"{LEGACY}_L5_TOTAL", ""),
    "4.6, any link": (f"{LEGACY}_PER_LINK_TOTAL", "5"),
    "Hopper": ("DCGM_FI_DEV_NVLINK_ERROR_DL_REPLAY", "5"),
    "Hopper, 4.6": ("DCGM_FI_DEV_NVLINK_REPLAY_TOTAL", "5"),
}
