"""Names of options in Kafka, librdkafka and other clients, with their effect in aioproducer."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

from aioproducer._core.records.compression import LEVELS
from aioproducer._core.steps import Log
from aioproducer.errors import ConfigError

log: Final = Log(__name__)

*_FIRST_LEVELS, _LAST_LEVEL = (f"compression.{codec}.level" for codec in LEVELS)

WITHOUT_EFFECT = frozenset(
    """
    bootstrap.resolve.timeout.ms buffer.memory.allocation.strategy client.dns.lookup config.providers
    metric.reporters metrics.num.samples metrics.recording.level
    metrics.sample.window.ms security.providers

    sasl.client.callback.handler.class sasl.kerberos.kinit.cmd sasl.kerberos.min.time.before.relogin
    sasl.kerberos.ticket.renew.jitter sasl.kerberos.ticket.renew.window.factor
    sasl.login.callback.handler.class sasl.login.class sasl.login.refresh.buffer.seconds
    sasl.login.refresh.min.period.seconds sasl.login.refresh.window.factor sasl.login.refresh.window.jitter
    sasl.oauthbearer.allow.unverified.audience sasl.oauthbearer.allow.unverified.issuer
    sasl.oauthbearer.clock.skew.seconds sasl.oauthbearer.expected.audience sasl.oauthbearer.expected.issuer
    sasl.oauthbearer.jwks.endpoint.refresh.ms sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms
    sasl.oauthbearer.jwks.endpoint.retry.backoff.ms sasl.oauthbearer.jwks.endpoint.url
    sasl.oauthbearer.jwt.validator.class sasl.oauthbearer.scope.claim.name sasl.oauthbearer.sub.claim.name

    ssl.keymanager.algorithm ssl.protocol ssl.provider
    ssl.secure.random.implementation ssl.trustmanager.algorithm
    """.split()  # noqa: SIM905 - shorter than quoted names
)
"""Options of Kafka's producer without effect in aioproducer. A test reads ProducerConfig of Kafka 4.4."""

REFUSED: Mapping[str, str] = {
    "interceptor.classes": "Python cannot load Java classes; give Python objects as 'interceptors'",
    "ssl.engine.factory.class": "Python cannot load Java classes; give an ssl_context",
}
"""Kafka's names of features that aioproducer lacks. A value that enables one of these features is an error."""

KAFKA_NAMES: Mapping[str, str] = {
    "compression.codec": "compression.type",
    "compression.level": f"{', '.join(_FIRST_LEVELS)} or {_LAST_LEVEL}",
    "max.batch.size": "batch.size",
    "max.in.flight": "max.in.flight.requests.per.connection",
    "message.max.bytes": "max.request.size",
    "message.send.max.retries": "retries",
    "message.timeout.ms": "delivery.timeout.ms",
    "metadata.broker.list": "bootstrap.servers",
    "queue.buffering.max.kbytes": "buffer.memory",
    "queue.buffering.max.ms": "linger.ms",
    "request.required.acks": "acks",
    "socket.receive.buffer.bytes": "receive.buffer.bytes",
    "socket.send.buffer.bytes": "send.buffer.bytes",
    "socket.timeout.ms": "request.timeout.ms",
    "topic.metadata.refresh.interval.ms": "metadata.max.age.ms",
    "sasl.mechanisms": "sasl.mechanism",
    "sasl.plain.password": "sasl.password",
    "sasl.plain.username": "sasl.username",
    "sasl.kerberos.name": "sasl.kerberos.service.name",
    "sasl.oauthbearer.client.id": "sasl.oauthbearer.client.credentials.client.id",
    "sasl.oauthbearer.client.secret": "sasl.oauthbearer.client.credentials.client.secret",
    "sasl.oauthbearer.assertion.jwt.template.file": "sasl.oauthbearer.assertion.template.file",
    "sasl.oauthbearer.grant.type": "sasl.oauthbearer.jwt.retriever.class",
    "ssl.ca.location": "ssl.truststore.location",
    "ssl.ca.pem": "ssl.truststore.certificates",
    "ssl.cafile": "ssl.truststore.location",
    "ssl.certfile": "ssl.keystore.certificate.chain",
    "ssl.certificate.location": "ssl.keystore.certificate.chain",
    "ssl.certificate.pem": "ssl.keystore.certificate.chain",
    "ssl.check.hostname": "ssl.endpoint.identification.algorithm",
    "ssl.ciphers": "ssl.cipher.suites",
    "ssl.key.location": "ssl.keystore.key",
    "ssl.key.pem": "ssl.keystore.key",
    "ssl.keyfile": "ssl.keystore.key",
    "ssl.password": "ssl.key.password",
}
"""Names of other clients (librdkafka, aiokafka) with Kafka's name of the option."""

HARMLESS = frozenset(
    """
    api.version.fallback.ms api.version.request api.version.request.timeout.ms
    batch.num.messages broker.address.family broker.address.ttl broker.version.fallback builtin.features
    client.software.name client.software.version debug delivery.report.only.error enable.random.seed enabled.events
    internal.termination.signal log.connection.close log.level log.queue log.thread.name message.copy.max.bytes opaque
    produce.offset.report queue.buffering.backpressure.threshold queue.buffering.max.messages queuing.strategy
    reconnect.backoff.jitter.ms socket.blocking.max.ms socket.keepalive.enable socket.max.fails
    socket.nagle.disable statistics.interval.ms sticky.partitioning.linger.ms
    topic.blacklist topic.metadata.propagation.max.ms topic.metadata.refresh.fast.cnt
    topic.metadata.refresh.fast.interval.ms
    topic.metadata.refresh.sparse

    sasl.kerberos.domain.name ssl.ca.certificate.stores ssl.curves.list ssl.providers ssl.sigalgs.list

    api.version api.version.auto.timeout.ms kafka.client loop
    metrics.enabled metric.group.prefix receive.message.max.bytes selector sock.chunk.buffer.count
    sock.chunk.bytes socket.options
    """.split()  # noqa: SIM905 - shorter than quoted names
)
"""Options of librdkafka, aiokafka and kafka-python without a counterpart. A file or mapping may contain these options."""

_UNCALLED = "callbacks of other clients are never called; {}"
_REPORTED = _UNCALLED.format("await send(), or add a callback to the Future of enqueue()")
_OBSERVED = _UNCALLED.format("read the log events and metrics()")
_SOCKETS = "asyncio opens and closes sockets; give dial, an async function that connects to a host and port"
_PROXY = "give dial, an async function that connects through the proxy"
_ENGINES = "OpenSSL engines cannot be loaded; give an ssl_context"
_ENDPOINT_TRUST = (
    "token endpoints are verified with the authorities of the system; give sasl_oauth_token_provider"
)
REFUSED_OF_OTHERS: Mapping[str, str] = {
    **dict.fromkeys(
        ("background.event.cb", "error.cb", "log.cb", "logger", "stats.cb", "throttle.cb", "msg.order.cmp"),
        _OBSERVED,
    ),
    **dict.fromkeys(("closesocket.cb", "connect.cb", "resolve.cb", "socket.cb"), _SOCKETS),
    "open.cb": "Python opens files",
    **dict.fromkeys(("dr.cb", "dr.msg.cb", "on.delivery"), _REPORTED),
    "partitioner.cb": "give a Python function as partitioner",
    "oauthbearer.token.refresh.cb": "give sasl_oauth_token_provider, which returns a token with value and expires_at",
    "oauth.cb": "give sasl_oauth_token_provider, which returns a token with value and expires_at",
    "ssl.certificate.verify.cb": "certificates are verified by ssl_context or the truststore",
    "default.topic.conf": "give the options of the topic beside the other options",
    "default.topic.config": "give the options of the topic beside the other options",
    "enable.gapless.guarantee": "a failed record does not stop the producer; await each send()",
    "enable.sasl.oauthbearer.unsecure.jwt": "give sasl.jaas.config with unsecuredLogin options",
    "enable.ssl.certificate.verification": "certificates are always verified; name the CA in ssl.truststore.location",
    "plugin.library.paths": "libraries of librdkafka cannot be loaded",
    **dict.fromkeys(("proxy.url", "socks5.proxy"), _PROXY),
    "sasl.oauthbearer.config": "give sasl_oauth_token_provider or sasl.oauthbearer.token.endpoint.url",
    "sasl.oauthbearer.assertion.private.key.pem": "give sasl.oauthbearer.assertion.private.key.file",
    "sasl.oauthbearer.metadata.authentication.type": "give sasl_oauth_token_provider",
    "sasl.oauthbearer.method": "only oidc is supported; give sasl_oauth_token_provider",
    "ssl.crl.location": "give an ssl_context that loads the revocation list",
    "ssl.crlfile": "give an ssl_context that loads the revocation list",
    **dict.fromkeys(("ssl.engine.callback.data", "ssl.engine.id", "ssl.engine.location"), _ENGINES),
    **dict.fromkeys(("https.ca.location", "https.ca.pem"), _ENDPOINT_TRUST),
    "ssl.ca": "give the certificates as ssl.ca.pem",
    "ssl.certificate": "give the certificate as ssl.certificate.pem",
    "ssl.key": "give the key as ssl.key.pem",
}
"""Options of other clients that change security, delivery or the program, with the reason or the replacement.

Each of these options is an error, because a warning may be overlooked.
"""

OTHER_CLIENTS = frozenset(
    """
    auto.commit.enable auto.commit.interval.ms auto.offset.reset bootstrap.controllers
    check.crcs consume.callback.max.messages consume.cb coordinator.query.interval.ms default.api.timeout.ms
    enable.auto.commit enable.auto.offset.store enable.partition.eof exclude.internal.topics fetch.error.backoff.ms
    fetch.max.bytes fetch.max.wait.ms fetch.message.max.bytes fetch.min.bytes fetch.queue.backoff.ms
    fetch.wait.max.ms group.id group.instance.id group.protocol group.protocol.type group.remote.assignor
    heartbeat.interval.ms internal.throw.on.fetch.stable.offset.unsupported isolation.level key.deserializer
    max.partition.fetch.bytes max.poll.interval.ms max.poll.records offset.commit.cb offset.store.method
    offset.store.path offset.store.sync.interval.ms partition.assignment.strategy queued.max.messages.kbytes
    queued.min.messages rebalance.cb session.timeout.ms share.acknowledgement.mode share.acquire.mode ssl.client.auth
    value.deserializer

    application.id auto.register.schemas avro.reflection.allow.null avro.remove.java.properties
    avro.use.logical.type.converters json.fail.invalid.schema json.key.type json.oneof.for.nullables
    json.value.type json.write.dates.iso8601 key.converter key.subject.name.strategy latest.cache.size
    latest.cache.ttl.sec latest.compatibility.strict max.schemas.per.subject normalize.schemas
    specific.avro.reader specific.protobuf.key.type specific.protobuf.value.type use.latest.version
    use.latest.with.metadata use.schema.id value.converter value.subject.name.strategy
    """.split()  # noqa: SIM905 - shorter than quoted names
)
"""Names of Kafka's consumer and admin clients, librdkafka's consumer, and of serializers with a schema registry.
Source: ConsumerConfig and AdminClientConfig of Kafka 4.4 (a test compares the names), AbstractKafkaSchemaSerDeConfig."""

OTHER_CLIENTS_PREFIXES = tuple(
    """
    schema.registry. basic.auth. bearer.auth. apicurio.registry. config.providers. rule. rules.
    confluent. ksql. admin. consumer. listener. streams. spring.kafka.admin. spring.kafka.consumer.
    spring.kafka.listener. spring.kafka.streams. spring.kafka.template.
    """.split()  # noqa: SIM905 - shorter than quoted names
)
"""First segments of options that belong to registries, config providers and other clients."""

_DEFAULT_ENGINE_FACTORY: Final = "org.apache.kafka.common.security.ssl.defaultsslenginefactory"
_ALIASES = {"partitioner_class": "partitioner"}
_NEAR = 0.72
"""Minimum similarity (0 to 1) of a suggested name. Misspelt names are above this value."""
_CAPITAL: Final = re.compile(r"(?<=[a-z])(?=[A-Z])")
"""Border of two words in names of .NET clients, such as `BootstrapServers`."""


def applied_options(options: Mapping[str, object], known: Collection[str]) -> dict[str, Any]:
    """Return the keyword arguments *options* that have an effect, under the names in *known*.

    Logs one warning for each of Kafka's names without effect in aioproducer. Operators read logs, not Python warnings.

    Raises:
        ConfigError: names are unknown, given in both spellings, or request an unsupported feature.
    """
    applied: dict[str, Any] = {}
    mistakes: list[str] = []
    for name, value in options.items():
        dotted, option = dotted_name(name), option_name(name)
        if option in applied:
            mistakes.append(given_twice(option, written_names(options)[option], name))
        elif option in known:
            applied[option] = value
        elif dotted in REFUSED:
            if not switches_nothing_on(value):
                mistakes.append(f"{name} = {value!r}: {REFUSED[dotted]}")
        elif dotted in WITHOUT_EFFECT:
            log.warning("config.without_effect name=%s", name)
        else:
            mistakes.append(unknown(name, known))
    if mistakes:
        raise ConfigError("\n".join(mistakes))
    return applied


def written_names(options: Iterable[str]) -> dict[str, str]:
    """Return the first spelling in *options* of each option, by the keyword argument of the option."""
    written: dict[str, str] = {}
    for name in options:
        written.setdefault(option_name(name), name)
    return written


def dotted_name(name: str) -> str:
    """Return *name* in Kafka's spelling."""
    return name.strip().replace("_", ".")


def option_name(name: str) -> str:
    """Return *name* in the spelling of keyword arguments."""
    option = name.strip().replace(".", "_")
    return _ALIASES.get(option, option)


def switches_nothing_on(value: object) -> bool:
    """Return True if *value* leaves a feature off, or is the class that Java uses by default."""
    return not value or str(value).strip().lower() in {"", "false", "none", _DEFAULT_ENGINE_FACTORY}


def is_of_other_clients(dotted: str) -> bool:
    """Return True if the option belongs to a consumer, an admin client, a serializer or a schema registry."""
    return dotted in OTHER_CLIENTS or dotted.startswith(OTHER_CLIENTS_PREFIXES)


def given_twice(option: str, first: str, second: str) -> str:
    """Return the message for an option in two spellings."""
    return f"{option!r} is given twice: as {first!r} and as {second!r}"


def unknown(name: str, known: Collection[str], *, of_others: bool = False) -> str:
    """Return the message for an unknown option *name*, with the nearest name; *of_others* includes other clients' names."""
    dotted = dotted_name(name)
    separator = "." if "." in name or (of_others and "_" not in name) else "_"
    if dotted in KAFKA_NAMES:
        return (
            f"unknown option {name!r}; Kafka's name for it is {KAFKA_NAMES[dotted].replace('.', separator)}"
        )
    if dotted in REFUSED_OF_OTHERS:
        return f"unknown option {name!r}; {REFUSED_OF_OTHERS[dotted]}"
    if dotted in HARMLESS or is_of_other_clients(dotted):
        return f"unknown option {name!r}; it has no counterpart here; leave it out"
    from difflib import get_close_matches  # noqa: PLC0415 - only needed for mistakes

    candidates = {each.replace("_", ".") for each in known} | WITHOUT_EFFECT | REFUSED.keys()
    if of_others:
        candidates |= OTHER_CLIENTS | KAFKA_NAMES.keys()
    lower = dotted.lower() if dotted.isupper() else _CAPITAL.sub(".", dotted).lower()
    nearest = get_close_matches(lower, sorted(candidates), n=1, cutoff=_NEAR)
    hint = f"; did you mean {nearest[0].replace('.', separator)!r}?" if nearest else ""
    return f"unknown option {name!r}{hint}"
