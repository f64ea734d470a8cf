"""The YAML files of the library mean the same to it and to any other reader of YAML."""

import pytest
import yaml
from workbench.base import ROOT, yaml_files

FILES = [
    path
    for folder in (ROOT / "lib" / "workbench", ROOT / "data")
    for path in sorted(folder.rglob("*.yaml"))
    if path.name != "create_connector.yaml"  # a template, YAML when it is filled in
]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_a_file_is_read_as_by_pyyaml(path):
    assert yaml_files.load(path) == yaml.safe_load(path.read_text())


def test_a_file_cannot_create_objects(tmp_path):
    path = tmp_path / "a.yaml"
    path.write_text("!!python/object/apply:os.getcwd []")
    with pytest.raises(yaml.YAMLError):
        yaml_files.load(path)


def test_a_key_is_there_once():
    assert yaml_files.parse("x: &x {a: 1, b: 2}\ny: {<<: *x, b: 3}")["y"] == {"a": 1, "b": 3}
    with pytest.raises(yaml.YAMLError, match="(?s)key 'a' occurs twice.*line 2"):
        yaml_files.parse("b: 1\nc: {a: 1, a: 2}")
