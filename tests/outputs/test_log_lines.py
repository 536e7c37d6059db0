"""/debug/log: the last lines of the log, behind the password as all else, and without any."""

from exporter import log
from tests.support.exporter import Start


async def test_the_log_is_there_and_has_no_password(start: Start) -> None:
    log.start_logging("debug", "logfmt")
    exporter = await start(dcgm_url="http://user:hunter2@127.0.0.1:9/metrics")
    await exporter.get("/gpu/metrics")
    text = await exporter.until("/debug/log", lambda text: "127.0.0.1:9" in text)
    assert "hunter2" not in text
