"""Worlds load strictly: each error names the file, the key path and the most similar key."""

import re

import on_aws
import pytest
import yaml
from workbench.base import environment, params, paths, secrets
from workbench.base.errors import ParamsError
from workbench.run import run_record
from workbench.stack import services

LOCAL = (paths.ROOT / "params" / "local.yaml").read_text(encoding="utf-8")


@pytest.fixture
def write(tmp_path):
    """Write params/local.yaml with one text replaced, and return the path."""

    def change(old="", new=""):
        assert not old or old in LOCAL
        path = tmp_path / "mine.yaml"
        path.write_text(LOCAL.replace(old, new, 1) if old else new or LOCAL, encoding="utf-8")
        return path

    return change


def leaves(value, path=""):
    if not isinstance(value, dict):
        return {path}
    return {leaf for k, v in value.items() for leaf in leaves(v, f"{path}.{k}".lstrip("."))}


@pytest.mark.parametrize("name", params.world_names())
def test_every_world_loads_and_has_the_same_keys(name):
    world = on_aws.world() if name == "aws" else params.load(name)
    raw = yaml.safe_load((paths.ROOT / world.file).read_text(encoding="utf-8"))
    assert world.name == name
    keys = leaves(yaml.safe_load(LOCAL))
    assert leaves(raw) == keys or leaves(raw) < keys | {"extends"}
    shown, local = (dict(params.flatten(each)) for each in (world, params.load("local")))
    assert shown.keys() == local.keys() and shown["sources.bikeshare.admin_user"]


def test_a_parameter_of_digits_is_a_number_only_where_the_world_has_one():
    world = on_aws.world(
        **{"spark/application": "0012345678901234", "postgres/port": "05432", "lake/bucket": "007"}
    )
    assert (world.spark.url, world.postgres.port, world.lake.root) == (
        "0012345678901234",
        5432,
        "s3://007",
    )
    with pytest.raises(ParamsError, match="postgres.port: Input should be a valid integer"):
        on_aws.world(**{"postgres/port": "five"})


def test_a_file_that_is_not_utf8_is_told_with_the_byte(write):
    path = write()
    path.write_bytes(
        path.read_bytes().replace(b"everything on this machine", "caf\u00e9".encode("latin-1"))
    )
    with pytest.raises(ParamsError, match="not UTF-8") as error:
        params.load_file(path)
    assert "mine.yaml: " in error.value.location and "byte 0xe9" in error.value.location


STACK = 'stack:\n  embedded: true\n  deployment: ""\n  port_base: 21400\n'
REFERENCE = [
    "postgres.admin_password: ",
    "a password is always a reference",
    "workbench secret NAME",
]


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        (
            "  bootstrap:",
            "  bootstrp:",
            ["unknown key 'bootstrp'", "kafka.bootstrp", "did you mean 'bootstrap'?"],
        ),
        ("lake:", "lak:", ["unknown key 'lak'", "mine.yaml: lak", "did you mean 'lake'?"]),
        ("  database: devdb\n", "", ["missing key 'database'", "postgres.database"]),
        ("embedded: true", "embedded: 1", ["stack.embedded: ", "valid boolean"]),
        ('region: ""', 'region: ""\nfile: x', ["mine.yaml: file", "instance of Path"]),
        ('region: ""', 'region: ""\n5: x', ["unknown key '5'", "mine.yaml: 5"]),
        ("parallelism: 2", "parallelism: 2.0", ["spark.parallelism: ", "valid integer"]),
        ("port_base: 21400", "port_base: 80", ["stack.port_base: ", "equal to 1024"]),
        (
            "database: devdb",
            "database: a\n  database: b",
            ["key 'database' occurs twice", "line"],
        ),
        (STACK, "stack: 5\n", ["stack: ", "valid dictionary"]),
        (STACK, "", ["missing key 'stack'"]),
        (
            "wire: apicurio_legacy8",
            "wire: apicurio_legacy",
            ["registry.wire: ", "'apicurio_legacy8' or 'glue'"],
        ),
        ("${secret:postgres.admin}", "hunter2", REFERENCE),
        ("${secret:postgres.admin}", "", REFERENCE),
        ("${secret:postgres.admin}", "{name: hunter2}", REFERENCE),
        (
            "${secret:postgres.admin}",
            "x${secret:a}",
            ["unknown reference ${secret:a}", "${secret:NAME} as the whole value"],
        ),
        ("database: devdb", "database: ${secret:x}", ["postgres.database: ", "valid string"]),
        ("engine: mariadb", "engine: postgres", ["mysql.engine: ", "'mariadb' or 'mysql'"]),
        ("user: workbench\n    password", "admin_user: workbench\n    password", ["'admin_user'"]),
        (
            "${port:0}",
            "${port:99}",
            ["unknown reference ${port:99}", "postgres.port", "${port:0…39}"],
        ),
    ],
)
def test_a_wrong_key_or_value_is_named(write, monkeypatch, old, new, says):
    monkeypatch.delenv("WORKBENCH_PORT_BASE")
    with pytest.raises(ParamsError) as error:
        params.load_file(write(old, new))
    assert all(text in str(error.value) for text in ["mine.yaml", *says]), str(error.value)
    assert "hunter2" not in str(error.value)


@pytest.mark.parametrize(
    ("old", "new", "key"),
    [
        (
            "  host: 127.0.0.1\n  port: ${port:0}",
            "  host: db.example.com\n  port: 5432",
            "postgres.host",
        ),
        ("  host: 127.0.0.1\n  port: ${port:7}", "  host: 10.0.0.5\n  port: 3306", "mysql.host"),
        ("bootstrap: 127.0.0.1:${port:1}", "bootstrap: broker.example.com:9092", "kafka.bootstrap"),
        ("url: http://127.0.0.1:${port:3}", "url: http://connect.example.com:8083", "connect.url"),
        ("url: https://127.0.0.1:${port:4}", "url: https://registry.example.com", "registry.url"),
        ("url: sc://127.0.0.1:${port:5}", "url: sc://spark.example.com:15002", "spark.url"),
        ("  user: workbench", '  user: ""', "connect.user"),
        ("url: https://127.0.0.1:${port:4}", "url: http://127.0.0.1:${port:4}", "registry.url"),
    ],
)
def test_an_embedded_world_has_protected_services_on_this_machine_only(write, old, new, key):
    """Its stack would stop the embedded service and start one at that address, or wait for one that refuses it."""
    with pytest.raises(ParamsError, match=f"{key} is '.*'(?s:.*)expected: ") as error:
        params.load_file(write(old, new))
    assert f"mine.yaml: {key}" in error.value.location and "managed: false" in error.value.hint


def test_an_embedded_world_can_use_a_cluster_elsewhere(write):
    path = write("master: local[2]", "master: spark://h.example.com:7077")
    assert params.load_file(path).spark.master == "spark://h.example.com:7077"


@pytest.mark.parametrize("value", ["1:30", "010", "yes"])
def test_old_forms_of_yaml_are_no_numbers(write, value):
    key = "interval_s" if value != "yes" else "small_files"
    with pytest.raises(ParamsError, match=f"watch.{key}: Input should be a valid"):
        params.load_file(write("", f"extends: local\nwatch:\n  {key}: {value}\n"))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a: [", "not YAML"),
        ("- a", "has no keys"),
        (" ", "has no keys"),
        ("a: " + "[" * 5_000, "not YAML"),
        ("1: a", "unknown key '1'"),
    ],
    ids=["open", "list", "blank", "deep", "number"],
)
def test_a_file_that_is_no_mapping(write, text, says):
    with pytest.raises(ParamsError, match=says):
        params.load_file(write("", text))


@pytest.mark.parametrize("name", ["lokal", "versions", "../local", None])
def test_a_world_that_does_not_exist(name):
    with pytest.raises(ParamsError, match="there is no world") as error:
        params.load(name)
    assert "valid: aws, cluster, local" in str(error.value)
    assert name != "lokal" or "did you mean 'local'" in str(error.value)


def test_secrets_never_show(monkeypatch):
    monkeypatch.setenv("WORKBENCH_SECRET_POSTGRES_ADMIN", "canary-of-admin")
    world = params.load("local")
    alone = f"{world.postgres.admin_password}"
    shown = [repr(world), str(world), alone, str(params.flatten(world))]
    assert world.postgres.admin_password.reveal() == "canary-of-admin"
    assert all("canary" not in text for text in shown)
    assert all(secrets.MASK in text for text in shown)


def test_the_port_base_of_the_environment_moves_every_port(monkeypatch):
    monkeypatch.setenv("WORKBENCH_PORT_BASE", "31000")
    world = params.load("local")
    ports = re.findall(r"31\d\d\d", str(world))
    assert world.stack.port_base == 31000 and world.postgres.port == 31000
    assert len(ports) == 8 and "214" not in str(world)


@pytest.mark.parametrize("base", ["x", "80", "²"])
def test_a_wrong_port_base_names_the_variable(monkeypatch, base):
    monkeypatch.setenv("WORKBENCH_PORT_BASE", base)
    with pytest.raises(ParamsError, match="environment variable WORKBENCH_PORT_BASE"):
        params.load("local")


@pytest.mark.parametrize(
    ("stated", "plain", "grpc"),
    [
        ({}, "127.0.0.1,localhost", "127.0.0.1,localhost"),
        (
            {"NO_PROXY": "corp.example, localhost"},
            "corp.example,localhost,127.0.0.1",
            "corp.example,localhost,127.0.0.1",
        ),
        (
            {"no_proxy": "a", "NO_PROXY": "b,a"},
            "a,b,127.0.0.1,localhost",
            "a,b,127.0.0.1,localhost",
        ),
        ({"no_proxy": "*"}, "*", "*,127.0.0.1,localhost"),
    ],
)
def test_no_proxy_leads_to_loopback(stated, plain, grpc):
    for _ in range(2):  # twice is as once
        stated = environment.proxy_exceptions(stated)
    assert [*stated.values()] == [plain, plain, grpc]
    assert [*stated] == ["no_proxy", "NO_PROXY", "no_grpc_proxy"]


@pytest.mark.parametrize("text", ["", "2140x"])
def test_a_damaged_port_base_is_named(monkeypatch, tmp_path, text):
    monkeypatch.setattr(paths, "VAR_DIR", tmp_path)
    paths.store_port_base(22400)
    paths.store_port_base(23400)
    assert paths.stored_port_base() == 22400, "the first one stays"
    paths.port_base_file().write_text(text)
    with pytest.raises(ParamsError, match="(?s)port base .* is no number.*port_base.*write"):
        paths.stored_port_base()


def test_instances_have_folders_of_their_own(monkeypatch):
    monkeypatch.setenv("WORKBENCH_INSTANCE", "other-1")
    assert params.load("local").lake.root == f"file:{paths.VAR_DIR}/instances/other-1/lake"
    for bad in ("../x", "", "a b", "A", "-a", "a" * 40):
        monkeypatch.setenv("WORKBENCH_INSTANCE", bad)
        with pytest.raises(ParamsError, match="WORKBENCH_INSTANCE"):
            params.load("local")


@pytest.fixture
def spaced(tmp_path, monkeypatch):
    """The checkout as a folder with a space in its path, and the place for links moved to where a
    test may spoil it."""
    monkeypatch.setattr(paths, "USER_RUNTIME_DIR", tmp_path / "links")
    monkeypatch.setattr(paths, "ROOT", tmp_path / "x y")
    monkeypatch.setattr(paths, "SAFE_ROOT", paths._shell_safe_path(paths.ROOT))
    paths.ROOT.mkdir()
    return paths.ROOT


def test_a_folder_with_a_space_is_reached_by_one_link_of_ours(spaced):
    link = paths.SAFE_ROOT
    assert " " not in str(link) and not paths.USER_RUNTIME_DIR.exists(), "a name changes nothing"
    for _ in range(2):
        paths.link_safe_root()
        assert link.resolve() == spaced and paths._shell_safe_path(spaced) == link
    assert paths.USER_RUNTIME_DIR.stat().st_mode & 0o777 == 0o700
    link.unlink()
    link.symlink_to("/nowhere")
    paths.link_safe_root()
    assert link.resolve() == spaced, "a stale one is made anew"
    assert paths.service_path(spaced / "a") == link / "a", "services get paths without the space"
    assert str(paths.service_path(paths.Path("/usr/bin"))) == "/usr/bin"
    assert (
        paths._shell_safe_path(paths.USER_RUNTIME_DIR) == paths.USER_RUNTIME_DIR
        and len(list(paths.USER_RUNTIME_DIR.iterdir())) == 1
    )
    link.unlink()
    paths.write_private_file(link / "var" / "file", b"text")
    assert (spaced / "var" / "file").read_bytes() == b"text", "no folder in place of the link"


def test_a_place_for_links_that_others_may_enter_or_that_leads_elsewhere_is_not_used(
    spaced, tmp_path
):
    paths.USER_RUNTIME_DIR.mkdir(mode=0o755)
    with pytest.raises(ParamsError, match="(?s)open to other users.*move the checkout"):
        paths.link_safe_root()
    paths.USER_RUNTIME_DIR.rmdir()
    (tmp_path / "trap").mkdir(mode=0o700)
    paths.USER_RUNTIME_DIR.symlink_to(tmp_path / "trap")
    with pytest.raises(ParamsError, match="open to other users"):
        paths.link_safe_root()
    assert list((tmp_path / "trap").iterdir()) == []


def test_runs_and_service_state_are_closed_and_a_folder_that_the_user_named_stays(
    tmp_path, monkeypatch
):
    world = params.load("local")
    monkeypatch.setattr(paths, "ROOT", tmp_path)
    monkeypatch.setattr(paths, "VAR_DIR", tmp_path / "var")
    for folder in ("var", "runs", "named"):
        (tmp_path / folder).mkdir(mode=0o755)
    secrets.ensure(services.SECRETS)
    run_record.create({}, world, [], {})
    monkeypatch.setenv("WORKBENCH_RUNS", str(tmp_path / "named"))
    run_record.create({}, world, [], {})
    (tmp_path / "linked").symlink_to(tmp_path / "named")
    paths.ensure_private_dir(tmp_path / "linked")  # it is no folder of the workbench's own
    assert [oct((tmp_path / f).stat().st_mode)[-3:] for f in ("var", "runs", "named")] == [
        "700",
        "700",
        "755",
    ]


def test_what_a_connect_worker_resolves_is_left_to_it():
    reference = params.load("local").connect.password_reference
    assert reference == f"${{directory:{paths.state_dir()}/secrets:postgres.replication}}"


def test_values_of_parameters():
    params.require_choice("source", "topic", "landed", "topic")
    with pytest.raises(
        ParamsError, match="(?s)parameter source is 'Topic'.*did you mean 'topic'.*landed"
    ):
        params.require_choice("source", "Topic", "landed", "topic")
    params.require_range("top", 1, 1, 50)
    for value in (0, 51, -1, 1.0, "20", True, 10**30):
        with pytest.raises(ParamsError, match="(?s)parameter top is .*from 1 to 50"):
            params.require_range("top", value, 1, 50)


SOURCE = 'engine: postgres, host: db.example.com, port: 5432, database: bikes, user: ada, password: "${secret:bikes}"'


def own_world(monkeypatch, tmp_path, text):
    """Load params/mine.yaml of a checkout with these params files."""
    folder = tmp_path / "params"
    folder.mkdir(exist_ok=True)
    (folder / "local.yaml").write_text(LOCAL, encoding="utf-8")
    (folder / "mine.yaml").write_text(text, encoding="utf-8")
    monkeypatch.setattr(paths, "ROOT", tmp_path)
    return params.load("mine")


def test_a_file_that_extends_another_has_only_the_differences(monkeypatch, tmp_path):
    world = own_world(
        monkeypatch,
        tmp_path,
        f"extends: local\nspark: {{parallelism: 7}}\nsources:\n  bikes: {{{SOURCE}}}\n",
    )
    local = params.load("local")
    assert (world.name, world.spark.parallelism, world.spark.url) == ("mine", 7, local.spark.url)
    assert world.source_names == ["postgres", "mariadb", "bikeshare", "bikes"]
    shown = dict(params.flatten(world))
    assert shown["sources.bikes.host"] == "db.example.com"
    assert shown["sources.bikes.admin_password"] == secrets.MASK


def test_a_source_is_the_database_of_a_world_with_the_same_state(monkeypatch, tmp_path):
    world = own_world(
        monkeypatch, tmp_path, f"extends: local\nsources:\n  bikes: {{{SOURCE}, ssl: require}}\n"
    )
    bikes = world.source("bikes")
    server = bikes.postgres
    assert (server.host, server.database, server.replication_user, server.ssl) == (
        "db.example.com",
        "bikes",
        "ada",
        "require",
    )
    assert bikes.connect.password_reference.endswith("secrets:bikes}")
    assert (
        bikes.state is world.state and bikes.base is world and bikes.source("bikes").base is world
    )
    assert world.manages("postgres") and not bikes.manages("postgres")
    assert bikes.manages("kafka") and bikes.kafka == world.kafka
    assert world.source("postgres") is world and world.source("mariadb") is world
    assert bikes.source("postgres") is world, "not the source again"


def test_a_service_of_somebody_else_may_be_on_another_machine(monkeypatch, tmp_path):
    text = "extends: local\nkafka: {bootstrap: 'broker.example.com:9092', managed: false}\n"
    world = own_world(monkeypatch, tmp_path, text)
    assert not world.manages("kafka") and world.manages("connect")
    assert "kafka" not in services.with_dependencies(world, services.DEFAULT_SERVICES)
    assert "kafka" in services.with_dependencies(params.load("local"), services.DEFAULT_SERVICES)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("extends: locl\n", "there is no world 'locl'(?s:.*)local"),
        ("extends: mine\n", "the file extends itself: mine"),
        ("extends: local\nsources: {bikes: 7}\n", "sources.bikes: Input should be a valid dict"),
        (
            f"extends: local\nsources: {{b: {{{SOURCE}, hots: x}}}}\n",
            "unknown key 'hots'(?s:.*)host",
        ),
        *(
            (
                f"extends: local\nsources: {{{name}: {{{SOURCE}}}}}\n",
                f"cannot have the name '{name}'(?s:.*)sources.{name}(?s:.*)postgres and mariadb",
            )
            for name in ("postgres", "mariadb")
        ),
        (
            f"extends: local\nsources: {{b: {{{SOURCE}, replication_password: x}}}}\n",
            "sources.b.replication_password: (?s:.*)a reference such as(?s:.*)workbench secret NAME",
        ),
    ],
)
def test_an_own_file_with_an_error_is_named(monkeypatch, tmp_path, text, message):
    with pytest.raises(ParamsError, match=message):
        own_world(monkeypatch, tmp_path, text)


def test_an_unknown_source_is_named(monkeypatch, tmp_path):
    world = own_world(monkeypatch, tmp_path, f"extends: local\nsources: {{bikes: {{{SOURCE}}}}}\n")
    with pytest.raises(ParamsError, match="no source 'bike'(?s:.*)bikes"):
        world.source("bike")


def test_a_capture_changes_roles_of_the_worlds_own_server_only(monkeypatch, tmp_path):
    text = f"extends: local\nsources:\n  bikes: {{{SOURCE}, managed: true}}\n"
    world = own_world(monkeypatch, tmp_path, text)
    with pytest.raises(ParamsError, match="is managed, and not on the server of its world"):
        world.source("bikes")
    assert params.load("local").source("bikeshare").postgres.managed, "it is on this server"
