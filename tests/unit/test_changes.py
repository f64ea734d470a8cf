"""Which landed files are new, and how often their lists are opened to know it."""

from types import SimpleNamespace

import pytest
from workbench import hudi
from workbench.base import files
from workbench.base.errors import LakeError
from workbench.hudi import changes


@pytest.fixture
def landing(tmp_path, monkeypatch):
    """A reader of one landed file at a time, whose batches are lists of addresses; `opened` are the
    lists that it read, `written` the lengths of those that it wrote."""
    lake = SimpleNamespace(
        **{name: f"file:{tmp_path}/{name}" for name in ("landing", "checkpoints", "tables")}
    )
    table = hudi.Table("t", f"{lake.tables}/t", ("id",), "v")
    opened, written, read_text, write_text = [], [], files.read_text, files.write_text
    monkeypatch.setattr(changes.decode_avro, "read_files", lambda spark, addresses, *_: addresses)
    monkeypatch.setattr(
        files,
        "read_text",
        lambda a: (opened.append(a) if "/checkpoints/t/" in a else None) or read_text(a),
    )
    monkeypatch.setattr(
        files, "write_text", lambda a, text: written.append(len(text)) or write_text(a, text)
    )
    (tmp_path / "landing" / "topic").mkdir(parents=True)

    def reader():
        source = hudi.Landed("topic", format="avro")
        return changes.create_reader(None, SimpleNamespace(lake=lake), source, table, 1)

    def land(number):
        (tmp_path / "landing" / "topic" / f"topic+0+{number:010d}.avro").write_text("x")

    return SimpleNamespace(reader=reader, land=land, opened=opened, written=written)


@pytest.mark.parametrize("anew", [True, False])
def test_a_batch_writes_its_own_list_only_and_opens_each_other_once(landing, anew):
    """130 runs of one file each; or one run that goes on. All that was read so far, written with
    each, is too much."""
    mine, reader = {}, landing.reader()
    for number in range(130):
        landing.land(number)
        reader = landing.reader() if anew else reader
        landing.opened.clear()
        batch = reader.next(mine, number)
        assert [f[-9:-5] for f in batch.rows] == [f"{number:04d}"]
        assert len(landing.opened) == len(set(landing.opened)) == (number if anew else 0)
        mine = batch.progress
    assert reader.next(mine, 130) is None
    assert len(landing.written) == 130 and len(set(landing.written)) == 1, "not more and more"
    reader = landing.reader()
    assert (
        reader.next({}, 130).rows and reader.next({"first": 130}, 131).rows
    )  # a replay reads everything again


def test_a_list_that_is_gone_is_not_taken_for_an_empty_one(landing):
    """Every file would be read again without a word."""
    landing.land(1)
    with pytest.raises(
        LakeError,
        match="(?s)files that were read .* is gone.*landed-topic/00000000.json.*replay=True",
    ):
        landing.reader().next({"first": 0, "topic_id": None}, 1)
