"""The text of errors, and the masking of credentials."""

import pytest
from workbench.base import errors, params
from worlds import with_settings


@pytest.mark.parametrize(
    "text, shown",
    [
        ("http://me:geheim@127.0.0.1:8081/apis", "http://••••••@127.0.0.1:8081/apis"),
        ("a 'https://me:ge/heim@host' b sc://x:y@h", "a 'https://••••••@host' b sc://••••••@h"),
        ("https://geheim@host/x", "https://••••••@host/x"),
        ("http://:geheim@h", "http://••••••@h"),
        ("http://h:80/a@b", "http://h:80/a@b"),
        ("me@h:5432: refused", "me@h:5432: refused"),
        ("http://u:p@ss@h/x", "http://••••••@h/x"),
        ("http://u:p@s/s@h/x", "http://••••••@h/x"),
        ("http://u@v@h/x", "http://••••••@h/x"),
        ("http://u:p@h,http://v:q@h2/", "http://••••••@h,http://••••••@h2/"),
        (
            "jdbc:postgresql://h/db?user=a&password=geheim&x=1",
            "jdbc:postgresql://h/db?user=a&password=••••••&x=1",
        ),
        ("jdbc:sqlserver://h:1;Password=geheim;x=1", "jdbc:sqlserver://h:1;Password=••••••;x=1"),
        ("http://[::1]:80/a@b", "http://[::1]:80/a@b"),
        ("mongodb://h:1,h2:2/?a=b@c", "mongodb://h:1,h2:2/?a=b@c"),
    ],
)
def test_logins_in_addresses_are_dots_in_every_part_of_an_error(text, shown):
    error = errors.StackError(text, location=text, expected=text, hint=text)
    assert {error.message, error.location, error.expected, error.hint} == {shown}
    assert str(error).count(shown) == 4 and str(error).replace(shown, "").count("@") == 0


def test_logins_in_addresses_of_a_world_are_dots():
    world = with_settings(params.load("local"), registry={"url": "http://me:geheim@127.0.0.1:8081"})
    assert dict(params.flatten(world))["registry.url"] == "http://••••••@127.0.0.1:8081"
    assert world.registry.url.count("geheim") == 1
