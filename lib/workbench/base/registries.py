"""Names that services and clients of the schema registries share."""

from .params import World

AVRO_CONVERTER = "io.apicurio.registry.utils.converter.AvroConverter"
REGISTRY_V2 = "/apis/registry/v2"  # path of Apicurio's API


def glue_registries(world: World) -> dict[str, str]:
    """Return Glue's registries of a deployment for the schemas of keys and of values.

    deploy/2-lake.yaml creates them.
    """
    return {side: f"{world.stack.deployment}-{side}s" for side in ("key", "value")}
