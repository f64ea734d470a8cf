"""Services that the user runs, beside those of the embedded stack."""

import pytest
from workbench import stack
from workbench.base.errors import StackError
from workbench.stack import process


def unmanaged(world, bootstrap):
    kafka = world.kafka.model_copy(update={"managed": False, "bootstrap": bootstrap})
    return world.model_copy(update={"kafka": kafka})


def test_a_service_of_somebody_else_is_checked_and_left(world):
    """Here it is the same Kafka: only the world says that the user runs it."""
    stack.ensure_running(world, "kafka", "connect")
    other = unmanaged(world, world.kafka.bootstrap)
    before = process.running_process("kafka").pid
    up = {status.name: status for status in stack.up(other, ["kafka", "connect"])}
    assert up["kafka"].state == up["connect"].state == "up"
    assert up["kafka"].detail == world.kafka.bootstrap
    assert {status.name: status.state for status in stack.status(other)}["kafka"] == "up"
    assert process.running_process("kafka").pid == before


def test_one_that_cannot_be_reached_is_named_before_anything_starts(world):
    stack.ensure_running(world, "kafka")
    nowhere = unmanaged(world, "127.0.0.1:1")
    with pytest.raises(StackError, match="(?s)kafka cannot be reached.*127.0.0.1:1"):
        stack.ensure_running(nowhere, "kafka", "postgres")
    assert {status.name: status.state for status in stack.status(nowhere)}["kafka"] == "unreachable"
    assert process.running_process("kafka"), "the embedded one still runs"
