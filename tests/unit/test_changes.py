"""Which landed files are new, and how often their lists are opened to know it."""
from types import SimpleNamespace

import pytest
from workbench import hudi
from workbench.base import files
from workbench.base.errors import LakeError
from workbench.hudi import changes


@pytest.fixture
def landing(tmp_path, monkeypatch):
    """A reader of landed files at a time, whose batches are lists of addresses; `opened` are the lists it read."""
    lake = SimpleNamespace(**{name: f"file:{tmp_path}/{name}" for name in ("landing", "checkpoints", "tables")})
    table = hudi.Table("t", f"{lake.tables}/t", ("id",), "v")
    opened, read_text = [], files.read_text
    monkeypatch.setattr(changes.decode_landed, "examine", lambda addresses: addresses)
    monkeypatch.setattr(files, "read_text", lambda a: (opened.append(a) if "/checkpoints/t/" in a else None)
                        or read_text(a))
    (tmp_path / "landing" / "topic").mkdir(parents=True)

    def reader():
        source = hudi.Landed("topic", format="avro")
        return changes.reader(None, SimpleNamespace(lake=lake), source, table, 1)

    def land(number):
        (tmp_path / "landing" / "topic" / f"topic+0+{number:010d}.avro").write_text("x")

    return SimpleNamespace(reader=reader, land=land, opened=opened)


@pytest.mark.parametrize("anew", [True, False])
def test_the_lists_are_opened_once(landing, anew):
    """130 runs of one file each; or one run that goes on."""
    mine, reader = {}, landing.reader()
    for number in range(130):
        landing.land(number)
        reader = landing.reader() if anew else reader
        batch = reader.next(mine, number)
        assert [f[-9:-5] for f in batch.files] == [f"{number:04d}"]
        mine = batch.reached
    assert reader.next(mine, 130) is None
    assert len(landing.opened) == (131 if anew else 1)
    reader = landing.reader()
    assert reader.next({}, 130).files and reader.next({"first": 130}, 131).files  # a replay reads everything again


def test_a_list_that_is_gone_is_not_taken_for_an_empty_one(landing):
    """Every file would be read again without a word."""
    landing.land(1)
    with pytest.raises(LakeError, match="(?s)files that were read .* is gone.*landed-topic.json.*replay=True"):
        landing.reader().next({"first": 0, "topic_id": None}, 1)
