"""The trainer's parts: history, pace, snapshot, progress."""

import io

import numpy as np

from pullback.io import read_history, write_history
from pullback.train.history import History
from pullback.train.pace import Pace
from pullback.train.progress import Display, duration
from pullback.train.snapshot import Snapshot


def test_history_fills_gaps_and_can_be_written(tmp_path):
    history = History()
    assert repr(history) == "History(0 epochs)" and history.last() == {}
    history.append({"loss": np.float32(2.0)})
    history.append({"validation_loss": 1.0})
    np.testing.assert_array_equal(history["loss"], [2.0, np.nan])
    np.testing.assert_array_equal(history["validation_loss"], [np.nan, 1.0])
    write_history(tmp_path / "history.json", history)
    assert read_history(tmp_path / "history.json")["validation_loss"][1] == 1.0


def test_pace_settles_at_its_target_and_follows_the_machine():
    pace = Pace(0.1)
    for _ in range(5):
        pace.measured(pace.steps, pace.steps * 0.001)
    assert pace.steps == 100
    pace.measured(pace.steps, pace.steps * 0.01)
    assert pace.steps == 10
    pace.measured(pace.steps, pace.steps * 10.0)
    assert pace.steps == 1


def doubled(tree):
    """Steps that double every number, in place."""

    def run(rows):
        for _ in rows:
            tree["w"] *= 2

    return run


def test_snapshot_goes_back_to_any_step():
    tree = {"w": np.array([1.0, 3.0])}
    step, rows = doubled(tree), np.zeros((4, 1), np.int64)
    snapshot = Snapshot(tree)
    step(rows)
    snapshot.record(rows)
    step(rows)
    snapshot.go_back(rows, 1, step)
    np.testing.assert_array_equal(tree["w"], [32.0, 96.0])
    snapshot.go_back(rows, 0, step)
    np.testing.assert_array_equal(tree["w"], [16.0, 48.0])


def test_snapshot_goes_one_step_further_when_numbers_overflowed():
    tree = {"w": np.array([2.0**1020])}
    step, rows = doubled(tree), np.zeros((3, 1), np.int64)
    snapshot = Snapshot(tree)
    step(rows)
    snapshot.record(rows)
    with np.errstate(over="ignore"):
        snapshot.go_back(np.zeros((2, 1), np.int64), 1, step)
    np.testing.assert_array_equal(tree["w"], [2.0**1023])


def test_snapshot_moves_on_with_time_but_not_to_what_is_not_finite(monkeypatch):
    monkeypatch.setattr("pullback.train.snapshot._SECONDS", -1.0)
    tree = {"w": np.array([1.0])}
    step, rows = doubled(tree), np.zeros((1, 1), np.int64)
    snapshot = Snapshot(tree)
    step(rows)
    snapshot.record(rows)
    ran = []
    snapshot.go_back(rows, 0, ran.append)
    assert ran == [] and tree["w"] == [2.0]
    tree["w"][:] = np.inf
    snapshot.record(rows)
    snapshot.go_back(rows, 0, step)
    assert tree["w"] == [4.0]


class Terminal(io.StringIO):
    """A terminal, for who asks."""

    encoding = "utf-8"

    def isatty(self):
        return True

    def screen(self):
        """What a person sees in the end: writing from the left of a line leaves what it does not reach."""
        lines = []
        for written in self.getvalue().split("\n"):
            line = ""
            for part in written.split("\r"):
                line = part + line[len(part) :]
            lines.append(line.rstrip())
        return lines


def test_display_draws_a_bar_on_a_terminal(monkeypatch):
    monkeypatch.setattr("pullback.train.progress._REFRESH_SECONDS", 0.0)
    terminal = Terminal()
    display = Display(2, 100, terminal)
    display.update(0, 50, {"loss": 1.25, "accuracy": 0.5}, rate=10.0)
    (line,) = terminal.screen()
    assert line.endswith("─  loss 1.2500  accuracy 50.00 %  10 steps/s  0:15 left") and len(line) == 79
    assert line.startswith("1/2  ━━━━") and line.count("━") == (line.count("━") + line.count("─")) // 4
    display.finish_epoch(0, {"loss": 1.0})
    display.update(1, 0, {}, rate=10.0)
    assert terminal.screen()[0] == "1/2  loss 1.0000"
    assert terminal.screen()[1].endswith("10 steps/s  0:10 left")
    display.close()
    assert terminal.screen() == ["1/2  loss 1.0000", ""]


def test_display_knows_what_a_terminal_can_show(monkeypatch):
    monkeypatch.setattr("pullback.train.progress._REFRESH_SECONDS", 0.0)
    monkeypatch.setattr(Terminal, "encoding", "ascii")
    plain = Terminal()
    Display(1, 2, plain).update(0, 1, {}, rate=1.0)
    assert "  " + "#" * 20 + "." * 20 + "  " in plain.getvalue()
    monkeypatch.setenv("TERM", "dumb")
    dumb = Terminal()
    Display(1, 2, dumb).update(0, 1, {}, rate=1.0)
    assert dumb.getvalue() == ""


def test_display_does_not_draw_more_often_than_eyes_see(monkeypatch):
    monkeypatch.setattr("pullback.train.progress._REFRESH_SECONDS", 1000.0)
    terminal = Terminal()
    display = Display(1, 3, terminal)
    for step in range(3):
        display.update(0, step, {}, rate=1.0)
    assert terminal.getvalue().count("left") == 1


def test_display_prints_a_line_per_epoch_elsewhere():
    file = io.StringIO()
    display = Display(2, 100, file)
    display.update(0, 50, {"loss": 1.25}, rate=10.0)
    display.finish_epoch(0, {"loss": 1.0, "accuracy": 0.5, "seconds": 1.0})
    display.close()
    assert file.getvalue() == "1/2  loss 1.0000  accuracy 50.00 %\n"


def test_durations():
    assert duration(0.2) == "0:00" and duration(59.7) == "1:00" and duration(float("nan")) == "?"
