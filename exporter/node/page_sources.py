"""The sources of pages that a `Config` names, and what finds those that it does not name."""

import asyncio
from typing import Any

from exporter import __version__
from exporter.config.http_file import HttpConfig
from exporter.config.node import Config
from exporter.config.pages import source_names
from exporter.config.parsers import Selector
from exporter.config.tls import ClientTls
from exporter.node.policies import gpu_families_from
from exporter.sources.any_inventory import DriverSource
from exporter.sources.made import Made
from exporter.sources.pages.discovery import Discovery
from exporter.sources.pages.file import PromFileSource
from exporter.sources.pages.source import PageSource
from exporter.sources.pages.url import DcgmSource
from exporter.sources.source import OnHealth


def page_sources(
    config: Config, http: HttpConfig, instance: str, made: Made, nvml: DriverSource
) -> tuple[PageSource, ...]:
    """The named sources of GPU samples, or `nvml` in their place.

    `instance` is what this process calls itself in the header Via.
    """
    if config.dcgm.mode == "off":
        from exporter.sources.nvml.page_source import NvmlPage  # noqa: PLC0415 - nobody else pays for it

        return (made.get(NvmlPage, nvml=nvml),)
    urls = (
        made.get(
            DcgmSource,
            name=name,
            url=url,
            timeout_seconds=config.dcgm.timeout_seconds,
            max_bytes=config.dcgm.max_bytes,
            headers=_headers(instance),
            http=http,
        )
        for name, url in zip(source_names(config.dcgm.urls), config.dcgm.urls, strict=True)
    )
    files = (
        made.get(
            PromFileSource, path=path, max_age_seconds=config.dcgm.file_max_age_seconds, max_bytes=config.dcgm.max_bytes
        )
        for path in config.dcgm.files
    )
    return (*urls, *files)


def _headers(instance: str) -> tuple[tuple[str, str], ...]:
    return ("User-Agent", f"pod-gpu-metrics-exporter/{__version__}"), ("Via", f"1.1 {instance}")


def discovery(config: Config, http: HttpConfig, instance: str, made: Made) -> Discovery:
    """What finds dcgm-exporter's pods; nobody without --dcgm.selector."""
    # what knows of TLS is asked over it; in the clear, whoever has the address would be told the credentials
    by_tls = http.tls != ClientTls()
    return made.get(
        _make_discovery,
        selectors=config.dcgm.selectors,
        namespaces=config.dcgm.namespaces,
        node=config.node.name,
        scheme="https" if by_tls else "http",
        takes_all_families=bool(config.families.allow),
        port=config.dcgm.port,
        path=config.dcgm.path,
        timeout_seconds=config.dcgm.timeout_seconds,
        max_bytes=config.dcgm.max_bytes,
        headers=_headers(instance),
        http=http if by_tls else HttpConfig(),
    )


def _make_discovery(
    *,
    selectors: tuple[Selector, ...],
    namespaces: tuple[str, ...],
    node: str,
    scheme: str,
    takes_all_families: bool,
    port: int,
    path: str,
    on_health: OnHealth,
    **settings: Any,  # noqa: ANN401 - what every DcgmSource is given
) -> Discovery:
    def make(name: str, url: str, places: asyncio.Semaphore) -> DcgmSource:
        admit = None if takes_all_families else gpu_families_from(name)
        return DcgmSource(name=name, url=url, places=places, on_health=on_health, admit=admit, **settings)

    return Discovery(
        selectors=selectors,
        namespaces=namespaces,
        node=node,
        port=port,
        path=path,
        make=make,
        scheme=scheme,
        on_health=on_health,
    )
