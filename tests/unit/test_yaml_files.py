"""The YAML files of the library mean the same to libyaml and to Python's parser."""

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
@pytest.mark.parametrize("as_text", [False, True])
def test_both_parsers_read_the_same(path, as_text, monkeypatch):
    expected = yaml.load(path.read_text(), yaml.BaseLoader if as_text else yaml.SafeLoader)
    assert yaml_files.load(path, as_text=as_text) == expected
    for name in ("CSafeLoader", "CBaseLoader"):  # a build of PyYAML without libyaml
        monkeypatch.delattr(yaml, name, raising=False)
    assert yaml_files.load(path, as_text=as_text) == expected


def test_a_file_cannot_create_objects(tmp_path):
    path = tmp_path / "a.yaml"
    path.write_text("!!python/object/apply:os.getcwd []")
    with pytest.raises(yaml.YAMLError):
        yaml_files.load(path)
