"""Apache Kafka behind the ports of `pipeline.ports`. The only package that imports aiokafka.

    settings = KafkaSettings.from_url("kafka://localhost:9092")
    broker = KafkaBroker(settings)
    await broker.start()

`reader` keeps consumers and tails alive, `producer` does the same for producers, `guard` holds the time
limits and the translation of errors. Each module says which habit of the client library it defends against.
"""

from pipeline.kafka.broker import KafkaBroker
from pipeline.kafka.settings import KafkaSettings

__all__ = ["KafkaBroker", "KafkaSettings"]
