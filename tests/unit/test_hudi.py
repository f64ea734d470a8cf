"""What a Table refuses, and the options it becomes."""
import pytest
from workbench import hudi
from workbench.base.errors import LakeError


def table(**fields):
    return hudi.Table(**{"name": "t", "base": "file:/nowhere/t", "key": ("id",), "ordering": "__lsn", **fields})


@pytest.mark.parametrize("fields, says", [
    ({"key": "id"}, "key of table t is 'id'"), ({"key": ()}, "no record key"), ({"ordering": ""}, "no ordering field"),
    ({"type": "mro"}, "did you mean 'mor'"), ({"index": "SIMPEL"}, "did you mean 'SIMPLE'"),
])
def test_a_table_that_cannot_be(fields, says):
    with pytest.raises(LakeError, match=says):
        table(**fields)


@pytest.mark.parametrize("fields, generator", [
    ({}, "NonpartitionedKeyGenerator"),
    ({"partition": ("a",)}, "SimpleKeyGenerator"),
    ({"partition": ("a", "b")}, "ComplexKeyGenerator"),
    ({"partition": ("a",), "key": ("x", "y")}, "ComplexKeyGenerator"),
])
def test_key_generators(fields, generator):
    assert table(**fields).options()["hoodie.datasource.write.keygenerator.class"].endswith("." + generator)


def test_options_can_be_overridden_and_say_what_matters():
    options = table(extra={"hoodie.metadata.enable": "true"}).options()
    assert options["hoodie.metadata.enable"] == "true"
    assert options["hoodie.write.table.version"] == "6" and options["hoodie.table.timeline.timezone"] == "UTC"
    assert options["hoodie.datasource.write.streaming.ignore.failed.batch"] == "false"
    assert all(isinstance(v, str) for v in options.values())
    assert table(index="BLOOM").options()["hoodie.parquet.bloom.filter.enabled"] == "true"
    assert table(index="BUCKET", buckets=5).options()["hoodie.bucket.index.num.buckets"] == "5"
    assert "hoodie.bucket.index.num.buckets" not in table().options()
    assert "hoodie.cleaner.parallelism" not in options and options["hoodie.global.index.reconcile.parallelism"] == "2"


@pytest.mark.parametrize("count", [0, "2", True])
def test_buckets_are_a_number(count):
    with pytest.raises(LakeError, match=f"buckets of table t is {count!r}"):
        table(buckets=count)


def test_no_table_is_said_so(tmp_path):
    with pytest.raises(LakeError, match="there is no Hudi table t"):
        hudi.properties(table(base=f"file:{tmp_path}"))


def test_another_table_version_is_an_error(tmp_path):
    (tmp_path / ".hoodie").mkdir()
    (tmp_path / ".hoodie" / "hoodie.properties").write_text("#x\nhoodie.table.version=8\n")
    with pytest.raises(LakeError, match="table version 8"):
        hudi.check_version(table(base=f"file:{tmp_path}"))
