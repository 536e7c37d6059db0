"""What the files hold that a cluster role's configuration names. Each is read once, before anything is made of it."""

from exporter.config.cluster import ClusterSettings
from exporter.config.files import read_structured
from exporter.config.http_file import HttpConfig, read_http_config
from exporter.config.named_files import check_usable
from exporter.config.tls import ClientTls
from exporter.errors import ConfigError


def read_cluster_http(cluster: ClusterSettings) -> HttpConfig:
    """What --cluster.http-config says, or nothing special.

    Raises:
        ConfigError: the file, or a file that it names, cannot be used.
    """
    flag, path = "--cluster.http-config", cluster.http_config_file
    if path is None:
        return HttpConfig()
    found = read_http_config(read_structured(path, flag), path, flag)
    if found.scheme and not cluster.nodes and not cluster.prometheus_url and found.tls == ClientTls():
        raise ConfigError(
            f"{flag}: {path!r}: a password or a token is never sent over plain HTTP to what the Kubernetes API names;"
            " give tls_config too, and the node exporters are asked over HTTPS"
        )
    check_usable(found, f"{flag}: {path!r}")
    return found
