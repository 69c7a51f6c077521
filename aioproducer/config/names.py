"""The names of options: those that do something here, those that only Kafka knows, and the rest."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

from aioproducer.errors import ConfigError
from aioproducer.escaping import escaped
from aioproducer.steps import Log

log: Final = Log(__name__)

WITHOUT_EFFECT = frozenset(
    """
    bootstrap.resolve.timeout.ms client.dns.lookup client.rack config.providers
    metric.reporters metrics.num.samples metrics.recording.level
    metrics.sample.window.ms partitioner.rack.aware security.providers

    sasl.client.callback.handler.class sasl.kerberos.kinit.cmd sasl.kerberos.min.time.before.relogin
    sasl.kerberos.ticket.renew.jitter sasl.kerberos.ticket.renew.window.factor
    sasl.login.callback.handler.class sasl.login.class sasl.login.refresh.buffer.seconds
    sasl.login.refresh.min.period.seconds sasl.login.refresh.window.factor sasl.login.refresh.window.jitter
    sasl.oauthbearer.clock.skew.seconds sasl.oauthbearer.expected.audience sasl.oauthbearer.expected.issuer
    sasl.oauthbearer.jwks.endpoint.refresh.ms sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms
    sasl.oauthbearer.jwks.endpoint.retry.backoff.ms sasl.oauthbearer.jwks.endpoint.url
    sasl.oauthbearer.jwt.validator.class sasl.oauthbearer.scope.claim.name sasl.oauthbearer.sub.claim.name

    ssl.engine.factory.class ssl.keymanager.algorithm ssl.protocol ssl.provider
    ssl.secure.random.implementation ssl.trustmanager.algorithm
    """.split()  # noqa: SIM905 - forty quoted names would be a page
)
"""Names that Kafka's producer knows and ours has no use for. Source: ProducerConfig, SaslConfigs and
SslConfigs of Kafka 4.4."""

REFUSED: Mapping[str, str] = {
    "interceptor.classes": "Java classes cannot be loaded here; give Python objects as 'interceptors'",
}
"""Kafka's names that change what a user may rely on: a warning would not do, unless they switch nothing on."""

KAFKA_NAMES: Mapping[str, str] = {
    "compression.codec": "compression.type",
    "compression.level": "compression.gzip.level, compression.lz4.level or compression.zstd.level",
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
"""What other clients (librdkafka, aiokafka) call an option, and what Kafka and we call it."""

NO_COUNTERPART = frozenset(
    """
    api.version.fallback.ms api.version.request api.version.request.timeout.ms background.event.cb
    batch.num.messages broker.address.family broker.address.ttl broker.version.fallback debug default.topic.config
    delivery.report.only.error dr.cb dr.msg.cb enable.gapless.guarantee error.cb log.cb
    log.connection.close log.level log.queue log.thread.name logger message.copy.max.bytes on.delivery opaque
    plugin.library.paths queue.buffering.backpressure.threshold queue.buffering.max.messages socket.keepalive.enable socket.max.fails
    socket.nagle.disable statistics.interval.ms stats.cb sticky.partitioning.linger.ms throttle.cb
    topic.blacklist topic.metadata.propagation.max.ms topic.metadata.refresh.fast.interval.ms
    topic.metadata.refresh.sparse

    enable.sasl.oauthbearer.unsecure.jwt enable.ssl.certificate.verification oauth.cb
    sasl.kerberos.domain.name sasl.oauthbearer.config sasl.oauthbearer.method ssl.ca.certificate.stores
    ssl.certificate.verify.cb ssl.crl.location ssl.crlfile ssl.curves.list ssl.engine.id ssl.engine.location
    ssl.sigalgs.list

    allow.auto.create.topics api.version api.version.auto.timeout.ms bootstrap.timeout.ms kafka.client loop
    metrics.enabled metric.group.prefix proxy.url receive.message.max.bytes selector sock.chunk.buffer.count
    sock.chunk.bytes socket.options socks5.proxy

    auto.offset.reset enable.auto.commit group.id key.deserializer session.timeout.ms value.deserializer
    """.split()  # noqa: SIM905 - as above
)
"""Options of other clients that there is nothing like here: of librdkafka and what wraps it, of aiokafka and
kafka-python, of consumers. The nearest name would mislead."""

_ALIASES = {"partitioner_class": "partitioner"}
_NEAR = 0.72
"""How much of a name must be right for another one to be suggested; what is only misspelt is above this."""


def as_written(ours: str, options: Iterable[str]) -> str:
    """Return the first of the names *options* that stands for our name *ours*."""
    return next((name for name in options if _our_name(name) == ours), ours)


def applied_options(options: Mapping[str, object], known: Collection[str]) -> dict[str, Any]:
    """Return the *options* that do something, under our names (*known*); either spelling is understood.

    Logs one warning for each of Kafka's names that has no effect here. It is a log line, not a Python
    warning: a configuration comes with a deployment, and its readers read logs.

    Raises:
        ConfigError: a name is unknown, given in both spellings, or asks for what we do not do.
    """
    applied: dict[str, Any] = {}
    for name, value in options.items():
        if not isinstance(name, str):
            raise ConfigError(f"{name!r} is not the name of an option; names are strings")
        dotted = _dotted(name)
        ours = _our_name(name)
        if ours in applied:
            raise ConfigError(f"{ours!r} is given twice: as {as_written(ours, options)!r} and as {name!r}")
        if ours in known:
            applied[ours] = value
        elif dotted in REFUSED:
            if value and str(value).strip().lower() not in {"", "false"}:  # else it switches nothing on
                raise ConfigError(f"{name} = {value!r}: {REFUSED[dotted]}")
        elif dotted in WITHOUT_EFFECT:
            log.warning("config.without_effect name=%s", escaped(name))
        else:
            raise ConfigError(_unknown(name, dotted, known))
    return applied


def _dotted(name: str) -> str:
    return name.strip().replace("_", ".")


def _our_name(name: str) -> str:
    ours = _dotted(name).replace(".", "_")
    return _ALIASES.get(ours, ours)


def _unknown(name: str, dotted: str, known: Collection[str]) -> str:
    separator = "." if "." in name else "_"
    if dotted in KAFKA_NAMES:
        return (
            f"unknown option {name!r}; Kafka's name for it is {KAFKA_NAMES[dotted].replace('.', separator)}"
        )
    if dotted in NO_COUNTERPART:
        return f"unknown option {name!r}; it has no counterpart here; leave it out"
    from difflib import get_close_matches  # noqa: PLC0415 - a start without mistakes needs none of it

    candidates = {each.replace("_", ".") for each in known} | WITHOUT_EFFECT | REFUSED.keys()
    nearest = get_close_matches(dotted, sorted(candidates), n=1, cutoff=_NEAR)
    hint = f"; did you mean {nearest[0].replace('.', separator)!r}?" if nearest else ""
    return f"unknown option {name!r}{hint}"
