"""KEDA's port with the TLS of the web config: certificates, who may ask, and what gRPC cannot keep."""

from pathlib import Path

import grpc
import grpc.aio
import pytest

from exporter.config.cluster_settings import ClusterConfig
from exporter.errors import ConfigError
from tests.cluster.keda.test_conversation import Code, Talk, config_of, refusal, talking, view
from tests.support.certificates import Authority, Pair


def web_config(folder: Path, pair: Pair, *more: str) -> ClusterConfig:
    path = folder / "web.yml"
    lines = (f"cert_file: {pair.cert}", f"key_file: {pair.key}", *more)
    path.write_text("tls_server_config:\n" + "".join(f"  {line}\n" for line in lines))
    return config_of(web__config__file=str(path))


def credentials(trusted: Authority, mine: Pair | None = None) -> grpc.ChannelCredentials:
    pair = (mine.key.read_bytes(), mine.cert.read_bytes()) if mine else (None, None)
    return grpc.ssl_channel_credentials(trusted.ca.read_bytes(), *pair)


async def another(talk: Talk, trusted: Authority, mine: Pair | None = None) -> grpc.aio.Channel:
    options = (("grpc.use_local_subchannel_pool", 1), ("grpc.ssl_target_name_override", "localhost"))
    return grpc.aio.secure_channel(f"127.0.0.1:{talk.port}", credentials(trusted, mine), options)


async def test_a_client_certificate_of_the_right_authority_and_name(tmp_path: Path) -> None:
    authority, foreign = Authority(tmp_path, "ours"), Authority(tmp_path, "foreign")
    mine = authority.issue("keda", "keda-operator")
    config = web_config(
        tmp_path,
        authority.issue("server", "localhost"),
        f"client_ca_file: {authority.ca}",
        "client_auth_type: RequireAndVerifyClientCert",
        "client_allowed_sans: [keda-operator]",
    )
    async with talking(view(30.0), config=config, credentials=credentials(authority, mine)) as talk:
        assert await talk.keda().is_active()
        assert (await talk.keda().stream().read()).result is True
        for pair in (None, foreign.issue("other", "keda-operator")):
            async with await another(talk, authority, pair) as channel:
                talk.channel = channel
                assert (await refusal(talk.keda()))[0] is Code.UNAVAILABLE, "no handshake"
        async with await another(talk, authority, authority.issue("third", "prometheus")) as channel:
            talk.channel = channel
            code, text = await refusal(talk.keda(), "GetMetricSpec")
            assert (code, "none of the names" in text) == (Code.PERMISSION_DENIED, True)
            with pytest.raises(grpc.aio.AioRpcError) as error:
                await talk.keda().stream().read()
            assert error.value.code() is Code.PERMISSION_DENIED


async def test_another_certificate_is_used_from_the_next_handshake_on(tmp_path: Path) -> None:
    old, new = Authority(tmp_path, "old"), Authority(tmp_path, "new")
    config = web_config(tmp_path, old.issue("server", "localhost"))
    async with talking(view(30.0), config=config, credentials=credentials(old)) as talk:
        assert await talk.keda().is_active()
        new.issue("server", "localhost")  # the same files
        await talk.service.reload()
        assert await talk.keda().is_active(), "a connection goes on"
        async with await another(talk, new) as channel:
            talk.channel = channel
            assert await talk.keda().is_active()
        async with await another(talk, old) as channel:
            talk.channel = channel
            assert (await refusal(talk.keda()))[0] is Code.UNAVAILABLE
        assert talk.service._beside is not None
        (tmp_path / "server-key.pem").unlink()
        talk.service._beside.use_certificates()
        async with await another(talk, new) as channel:
            talk.channel = channel
            assert await talk.keda().is_active(), "those before stay"


@pytest.mark.parametrize("line", ["min_version: TLS13", "max_version: TLS12", "cipher_suites: [{}]"])
async def test_what_grpc_cannot_keep_ends_the_start(tmp_path: Path, line: str) -> None:
    line = line.format("TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256")
    config = web_config(tmp_path, Authority(tmp_path, "ours").issue("server", "localhost"), line)
    with pytest.raises(ConfigError, match=f"--keda.listen-address: {line.partition(':')[0]}"):
        async with talking(config=config):
            pass


async def test_tls_stays_while_the_port_is_open(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    authority = Authority(tmp_path, "ours")
    pair = authority.issue("server", "localhost")
    config = web_config(tmp_path, pair)
    async with talking(view(30.0), config=config, credentials=credentials(authority)) as talk:
        role = talk.service._role
        (tmp_path / "web.yml").write_text("{}")
        await talk.service.reload()
        assert talk.service._role is role
        assert talk.service._web.config.tls is not None, "it is refused as a whole"
        assert await talk.keda().is_active()
    assert "configuration refused" in caplog.text


async def test_passwords_are_no_protection_here_and_the_log_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "web.yml"
    path.write_text("basic_auth_users:\n  me: $2y$04$abcdefghijklmnopqrstuuxXe7ZY8EqTpqPN0MEdKLP9oAHPY9yUO\n")
    async with talking(view(30.0), config=config_of(web__config__file=str(path))) as talk:
        assert await talk.keda().is_active()
    assert "do not protect --keda.listen-address" in caplog.text
