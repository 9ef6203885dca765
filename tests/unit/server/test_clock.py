import threading
from datetime import UTC, datetime, timedelta

from apscheduler.schedulers.background import BackgroundScheduler

from gridbot_server.cycles.clock import ClockWatch
from gridbot_server.cycles.process import call


def test_a_clock_that_is_set_back_is_noticed_once() -> None:
    wall, steady = 1000.0, 5.0
    watch = ClockWatch(lambda: wall, lambda: steady)
    wall, steady = wall + 1, steady + 1
    assert not watch.was_set_back()
    wall, steady = wall - 3600, steady + 1
    assert watch.was_set_back()
    wall, steady = wall + 1, steady + 1
    assert not watch.was_set_back()


def test_a_clock_that_is_set_forward_or_adjusted_is_no_matter() -> None:
    wall, steady = 1000.0, 5.0
    watch = ClockWatch(lambda: wall, lambda: steady)
    wall, steady = wall + 3600, steady + 1
    assert not watch.was_set_back()
    wall, steady = wall + 0.9, steady + 1
    assert not watch.was_set_back()


def test_jobs_that_wait_for_a_time_far_away_run_when_called() -> None:
    ran = threading.Event()
    scheduler = BackgroundScheduler(timezone="UTC")
    scheduler.start()
    try:
        late = datetime.now(UTC) + timedelta(hours=1)
        scheduler.add_job(ran.set, "interval", seconds=0.1, next_run_time=late)
        call(scheduler)
        assert ran.wait(30)
        ran.clear()
        assert ran.wait(30)  # and goes on
    finally:
        scheduler.shutdown()
