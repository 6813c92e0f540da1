"""The routes of Kafka Connect's REST interface (SP-C4), over one herder.

What only the leader may do, or only the owner of a task can do, is forwarded to that worker, once or twice while
leaders change. Every error is a JSON object with `error_code` and `message`.

Owns paths, parameters, status codes and the shapes of requests. Must not know how anything is done.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Future
from typing import Any, Final, TypeVar
from urllib.parse import quote, urlencode

from aiohttp import web

from base.other_sites import other_site
from milena_broker import __version__
from spark_jobs.connect.base.calls import call_in_thread
from spark_jobs.connect.base.connector_settings import CONNECTOR_CLASS, NAME
from spark_jobs.connect.base.definitions import Kind, parse
from spark_jobs.connect.base.errors import AlreadyExistsError, ConfigError, ConnectError, NotFoundError
from spark_jobs.connect.base.states import TargetState, TaskId
from spark_jobs.connect.base.versions import KAFKA_VERSION
from spark_jobs.connect.herders import forwarding, loggers
from spark_jobs.connect.herders.herder import Herder, NotOwnerError
from spark_jobs.connect.herders.leader import NotLeaderError
from spark_jobs.connect.herders.offset_changes import OffsetChanges, parse_changes
from spark_jobs.connect.herders.queries import Queries
from spark_jobs.connect.herders.validation import definition_of, described, raise_problems, validate
from spark_jobs.connect.stores.config_state import logger_record

logger = logging.getLogger("org.apache.kafka.connect.runtime.rest.RestServer")

T = TypeVar("T")
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

BODY_MAX: Final = 4 << 20
TIMEOUT_S: Final = 90.0
HEALTH_TIMEOUT_S: Final = 10.0
FORWARD: Final = "forward"
ALLOWED_ORIGINS: Final = "access.control.allow.origin"
TASK_DIGITS_MAX: Final = 9
_STATUS_OF: Mapping[type[Exception], int] = {
    NotFoundError: 404,
    AlreadyExistsError: 409,
    ConfigError: 400,
    ConnectError: 500,
}
_NEXT_FORWARD: Mapping[str | None, str] = {None: "true", "true": "false"}
"""How often a request was forwarded, as Kafka's workers count it in a parameter."""


class RestApp:
    """The application of one worker."""

    def __init__(self, herder: Herder, cluster_id: Callable[[], str | None]) -> None:
        self._herder = herder
        self._cluster_id = cluster_id
        self._queries = Queries(herder)
        self._offsets = OffsetChanges(herder)
        self._patching = asyncio.Lock()

    def application(self) -> web.Application:
        app = web.Application(client_max_size=BODY_MAX, middlewares=[self._answer_errors])
        connector = "/connectors/{connector}"
        task = connector + "/tasks/{task}"
        plugin = "/connector-plugins/{plugin}"
        routes: list[tuple[str, str, Handler]] = [
            ("GET", "/", self._root),
            ("GET", "/health", self._health),
            ("GET", "/connectors", self._connectors),
            ("POST", "/connectors", self._create),
            ("GET", connector, self._connector),
            ("DELETE", connector, self._delete),
            ("GET", f"{connector}/config", self._config),
            ("PUT", f"{connector}/config", self._put_config),
            ("PATCH", f"{connector}/config", self._patch_config),
            ("GET", f"{connector}/status", self._status),
            ("POST", f"{connector}/restart", self._restart),
            ("PUT", f"{connector}/pause", self._target(TargetState.PAUSED, 202)),
            ("PUT", f"{connector}/resume", self._target(TargetState.STARTED, 202)),
            ("PUT", f"{connector}/stop", self._target(TargetState.STOPPED, 204)),
            ("GET", f"{connector}/tasks", self._tasks),
            ("POST", f"{connector}/tasks", self._put_tasks),
            ("GET", f"{connector}/tasks-config", self._tasks_config),
            ("GET", f"{task}/status", self._task_status),
            ("POST", f"{task}/restart", self._restart_task),
            ("PUT", f"{connector}/fence", self._fence),
            ("GET", f"{connector}/topics", self._topics),
            ("PUT", f"{connector}/topics/reset", self._reset_topics),
            ("GET", f"{connector}/offsets", self._get_offsets),
            ("PATCH", f"{connector}/offsets", self._alter_offsets),
            ("DELETE", f"{connector}/offsets", self._reset_offsets),
            ("GET", "/connector-plugins", self._plugins),
            ("GET", f"{plugin}/config", self._plugin_config),
            ("PUT", f"{plugin}/config/validate", self._validate),
            ("GET", "/admin/loggers", self._loggers),
            ("GET", "/admin/loggers/{logger}", self._logger),
            ("PUT", "/admin/loggers/{logger}", self._set_logger),
        ]
        serves_admin = self._herder.settings["admin.listeners"] is None
        for method, path, handler in routes:
            if serves_admin or not path.startswith("/admin"):
                app.router.add_route(method, _with_or_without_slash(path), handler)
        return app

    def internal_application(self) -> web.Application:
        """Return what only workers of the same group use."""
        app = web.Application(client_max_size=BODY_MAX, middlewares=[self._answer_errors])
        app.router.add_post("/connectors/{connector}/tasks", self._put_tasks)
        app.router.add_put("/connectors/{connector}/fence", self._fence)
        return app

    # The worker

    async def _root(self, _request: web.Request) -> web.Response:
        commit = f"milena-{__version__}"
        return _json({"version": KAFKA_VERSION, "commit": commit, "kafka_cluster_id": self._cluster_id()})

    async def _health(self, _request: web.Request) -> web.Response:
        """See KIP-1017."""
        if not self._herder.is_ready:
            return _json({"status": "starting", "message": "Worker is still starting up."}, 503)
        try:
            await self._decided(lambda: None, HEALTH_TIMEOUT_S)
        except TimeoutError:
            text = f"Worker was unable to handle this request within {HEALTH_TIMEOUT_S:g} s and may be stalled."
            return _json({"status": "unhealthy", "message": text}, 500)
        text = "Worker has completed startup and is ready to handle requests."
        return _json({"status": "healthy", "message": text})

    async def _loggers(self, _request: web.Request) -> web.Response:
        return _json(loggers.levels())

    async def _logger(self, request: web.Request) -> web.Response:
        return _json(loggers.level_of(request.match_info["logger"]))

    async def _set_logger(self, request: web.Request) -> web.Response:
        body = await _object(request)
        level, name = body.get("level"), request.match_info["logger"]
        if not isinstance(level, str):
            raise NotFoundError("Desired 'level' parameter was not specified in request.")
        if level.upper() not in loggers.LEVELS:
            raise NotFoundError(f"invalid log level '{level}'.")
        if request.query.get("scope", "worker").lower() == "cluster":
            await self._decided(lambda: self._herder.write([logger_record(name, level.upper())]))
            return web.Response(status=204)
        return _json(loggers.set_level(name, level))

    # Connectors

    async def _connectors(self, request: web.Request) -> web.Response:
        expand = request.query.getall("expand", [])
        wanted = {part for each in expand for part in each.split(",")}
        if not wanted:
            return _json(self._queries.names())
        show = {"status": self._queries.status, "info": self._queries.connector}
        found: dict[str, Any] = {}
        for name in self._queries.names():
            try:
                found[name] = {each: show[each](name) for each in ("status", "info") if each in wanted}
            except NotFoundError:
                continue  # deleted since
        return _json(found)

    async def _create(self, request: web.Request) -> web.Response:
        body = await _object(request)
        config = _config(body.get("config"))
        name = body.get(NAME) or config.get(NAME) or ""
        if not isinstance(name, str) or not name.strip():
            raise ConfigError("The name of a connector is missing: expected a text in 'name'")
        target = _initial_target(body.get("initial_state"))
        await self._put(name.strip(), config, replaces=False, target=target)
        found = self._queries.connector(name.strip())
        return _json(found, 201, _location(name.strip()))

    async def _put_config(self, request: web.Request) -> web.Response:
        name = request.match_info["connector"]
        is_new = await self._put(name, _config(await _body(request)), replaces=True)
        status, headers = (201, _location(name)) if is_new else (200, None)
        return _json(self._queries.connector(name), status, headers)

    async def _patch_config(self, request: web.Request) -> web.Response:
        name = request.match_info["connector"]
        changes = _config(await _body(request), with_nulls=True)
        async with self._patching:  # two at a time would each keep what the other one changes
            state = await self._decided(lambda: self._herder.state_with(name))
            merged = {**state.connectors[name], **changes}
            await self._put(name, {key: value for key, value in merged.items() if value is not None}, replaces=True)
        return _json(self._queries.connector(name))

    async def _put(
        self, name: str, config: Mapping[str, str], *, replaces: bool, target: TargetState | None = None
    ) -> bool:
        """Check and store a configuration; return whether the connector is new."""
        if config.get(NAME, name) != name:
            raise ConfigError(
                f"Connector name configuration ({config[NAME]}) doesn't match connector name in the URL ({name})"
            )
        await self._decided(self._herder.leader.require_here)
        whole = {**config, NAME: name}
        raise_problems(await _in_thread(lambda: self._validated(whole)))
        return await self._decided(lambda: self._herder.put_connector(name, whole, replaces=replaces, target=target))

    def _validated(self, config: Mapping[str, str | None]) -> dict[str, Any]:
        return validate(config, self._herder.settings, self._herder.plugins)

    async def _connector(self, request: web.Request) -> web.Response:
        return _json(self._queries.connector(request.match_info["connector"]))

    async def _config(self, request: web.Request) -> web.Response:
        return _json(self._queries.config(request.match_info["connector"]))

    async def _status(self, request: web.Request) -> web.Response:
        return _json(self._queries.status(request.match_info["connector"]))

    async def _delete(self, request: web.Request) -> web.Response:
        name = request.match_info["connector"]
        await self._decided(lambda: self._herder.delete_connector(name))
        return web.Response(status=204)

    def _target(self, target: TargetState, status: int) -> Handler:
        async def handle(request: web.Request) -> web.Response:
            name = request.match_info["connector"]
            await self._decided(lambda: self._herder.set_target(name, target))
            return web.Response(status=status)

        return handle

    async def _restart(self, request: web.Request) -> web.Response:
        name = request.match_info["connector"]
        with_tasks, only_failed = _flag(request, "includeTasks"), _flag(request, "onlyFailed")
        if not with_tasks and not only_failed:
            await self._decided(lambda: self._herder.restart_connector(name))
            return web.Response(status=204)

        def restart() -> dict[str, Any]:
            self._herder.state_with(name)
            # Before the request: after it, what has failed may run again at once.
            plan = self._queries.restart_plan(name, only_failed=only_failed, include_tasks=with_tasks)
            self._herder.request_restart(name, only_failed=only_failed, include_tasks=with_tasks)
            return plan

        return _json(await self._decided(restart), 202)

    async def _topics(self, request: web.Request) -> web.Response:
        if not self._herder.settings["topic.tracking.enable"]:
            return _error(403, "Topic tracking is disabled.")
        return _json(self._queries.topics(request.match_info["connector"]))

    async def _reset_topics(self, request: web.Request) -> web.Response:
        settings = self._herder.settings
        if not settings["topic.tracking.enable"]:
            return _error(403, "Topic tracking is disabled.")
        if not settings["topic.tracking.allow.reset"]:
            return _error(403, "Topic tracking reset is disabled.")
        self._queries.config(request.match_info["connector"])
        self._herder.states.forget_topics(request.match_info["connector"])
        return web.Response(status=202)

    # Tasks

    async def _tasks(self, request: web.Request) -> web.Response:
        return _json(self._queries.tasks(request.match_info["connector"]))

    async def _tasks_config(self, request: web.Request) -> web.Response:
        tasks = self._queries.tasks(request.match_info["connector"])
        return _json({str(TaskId(**each["id"])): each["config"] for each in tasks})

    async def _task_status(self, request: web.Request) -> web.Response:
        return _json(self._queries.task_status(_task(request)))

    async def _restart_task(self, request: web.Request) -> web.Response:
        task = _task(request)
        await self._decided(lambda: self._herder.restart_task(task))
        return web.Response(status=204)

    async def _put_tasks(self, request: web.Request) -> web.Response:
        await self._require_worker(request)
        configs = await _body(request)
        if not isinstance(configs, list):
            raise ConfigError("expected a list of configurations of tasks")
        name, tasks = request.match_info["connector"], [_config(each) for each in configs]
        await self._decided(lambda: self._herder.put_task_configs(name, tasks))
        return web.Response(status=200)

    async def _fence(self, request: web.Request) -> web.Response:
        await self._require_worker(request)
        name = request.match_info["connector"]
        await _in_thread(lambda: self._herder.fence(name))
        return web.Response(status=200)

    async def _require_worker(self, request: web.Request) -> None:
        """Raise HTTPForbidden unless a worker of the group has sent a request, if its workers sign them."""
        key = self._herder.configs.state.session_key
        if not self._herder.leader.uses_signatures:
            return
        if key is None:
            raise web.HTTPServiceUnavailable(text="This worker has not been able to read a session key yet.")
        if forwarding.SIGNATURE not in request.headers:
            raise web.HTTPBadRequest(text="Internal request missing required header X-Connect-Authorization")
        if not forwarding.is_signed(key, await request.read(), request.headers):
            raise web.HTTPForbidden(text="Internal request contained invalid signature.")

    # Offsets

    async def _get_offsets(self, request: web.Request) -> web.Response:
        name = request.match_info["connector"]
        return _json(await _in_thread(lambda: self._offsets.offsets(name)))

    async def _alter_offsets(self, request: web.Request) -> web.Response:
        changes = parse_changes(await _body(request))
        await self._decided(self._herder.leader.require_here)
        name = request.match_info["connector"]
        return _json({"message": await _in_thread(lambda: self._offsets.alter(name, changes))})

    async def _reset_offsets(self, request: web.Request) -> web.Response:
        await self._decided(self._herder.leader.require_here)
        name = request.match_info["connector"]
        return _json({"message": await _in_thread(lambda: self._offsets.reset(name))})

    # Plug-ins

    async def _plugins(self, request: web.Request) -> web.Response:
        only = request.query.get("connectorsOnly", "true").lower() != "false"
        return _json(await _in_thread(lambda: self._queries.plugins(connectors_only=only)))

    async def _plugin_config(self, request: web.Request) -> web.Response:
        name = request.match_info["plugin"]
        plugin = self._herder.plugins.find(name)
        if plugin is None:
            raise NotFoundError(f"Unknown plugin {name}.")
        definition = await _in_thread(lambda: definition_of(plugin.load()))
        return _json([described(each) for each in definition])

    async def _validate(self, request: web.Request) -> web.Response:
        name = request.match_info["plugin"]
        body = await _body(request)
        config = {} if body == [] else _config(body)
        given = config.get(CONNECTOR_CLASS)
        if given is not None and _short(given) != _short(name):
            raise ConfigError(f"Included connector type {given} does not match request type {name}")
        return _json(await _in_thread(lambda: self._validated({**config, CONNECTOR_CLASS: given or name})))

    # All routes

    async def _decided(self, call: Callable[[], T], timeout_s: float = TIMEOUT_S) -> T:
        """Return the result of a call in the herder's thread."""
        return await _result(self._herder.submit(call), timeout_s)

    @web.middleware
    async def _answer_errors(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        response = await self._answered(request, handler)
        if self._is_allowed_origin(request):
            response.headers.update({"Access-Control-Allow-Origin": request.headers["Origin"], "Vary": "Origin"})
        return response

    def _is_allowed_origin(self, request: web.Request) -> bool:
        """Return whether a page of another site has sent a request, and may do so."""
        allowed = {each.strip() for each in self._herder.settings[ALLOWED_ORIGINS].split(",")}
        origin = request.headers.get("Origin")
        return bool(origin) and ("*" in allowed or origin in allowed)

    async def _answered(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Return the response of a handler, or that of its error."""
        try:
            if not self._is_allowed_origin(request):
                _refuse_other_sites(request)
            elif request.method == "OPTIONS":
                return self._preflight()
            _require_json(request)
            return await handler(request)
        except NotLeaderError as error:
            return await self._forward(request, error.leader_url)
        except NotOwnerError as error:
            return await self._forward(request, error.owner_url)
        except web.HTTPException as error:
            text = error.text if error.status in (400, 403, 503) else f"HTTP {error.status} {error.reason}"
            response = _error(error.status, text or error.reason)
            if "Allow" in error.headers:
                response.headers["Allow"] = error.headers["Allow"]
            return response
        except TimeoutError:
            return _error(500, "Request timed out")
        except Exception as error:
            status = next((each for kind, each in _STATUS_OF.items() if isinstance(error, kind)), 500)
            if not isinstance(error, ConnectError):
                logger.exception("%s %s has failed", request.method, request.path)
            return _error(status, str(error) or type(error).__name__)

    def _preflight(self) -> web.Response:
        """Return what a browser asks for before it sends a page's request that is not simple, such as one with JSON."""
        methods = self._herder.settings["access.control.allow.methods"] or "GET,POST,HEAD"
        headers = {"Access-Control-Allow-Methods": methods, "Access-Control-Allow-Headers": "Content-Type,Accept"}
        return web.Response(headers=headers)

    async def _forward(self, request: web.Request, url: str) -> web.Response:
        """Return the response of another worker."""
        count = request.query.get(FORWARD)
        if not url or url == self._herder.url or count not in _NEXT_FORWARD:
            return _error(
                409,
                "Cannot complete request momentarily due to stale configuration (typically caused by a concurrent "
                "config change)",
            )
        query = [(key, value) for key, value in request.query.items() if key != FORWARD]
        path = f"{request.raw_path.partition('?')[0]}?{urlencode([*query, (FORWARD, _NEXT_FORWARD[count])])}"
        body = await request.read()
        kept = ("Content-Type", forwarding.SIGNATURE, forwarding.ALGORITHM, "Authorization")
        headers = {name: request.headers[name] for name in kept if name in request.headers}
        status, content = await _in_thread(lambda: forwarding.send(url, request.method, path, body, headers))
        return web.Response(status=status, body=content, content_type="application/json")


def _json(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> web.Response:
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return web.Response(status=status, text=text, content_type="application/json", headers=headers)


def _error(status: int, message: str) -> web.Response:
    return _json({"error_code": status, "message": message}, status)


def _refuse_other_sites(request: web.Request) -> None:
    """Raise HTTPForbidden if a page of another site has sent a request."""
    if (source := other_site(request.headers, is_link_followed=request.method == "GET")) is not None:
        raise web.HTTPForbidden(text=f"A request from {source} is not served: {ALLOWED_ORIGINS} does not allow it")


def _require_json(request: web.Request) -> None:
    """Raise HTTPUnsupportedMediaType for a body that is not JSON. Forms of other sites cannot send JSON."""
    has_content = request.body_exists or "Content-Type" in request.headers
    if request.method != "GET" and has_content and request.content_type != "application/json":
        raise web.HTTPUnsupportedMediaType


async def _body(request: web.Request) -> Any:
    """Return the JSON of a request. Raises ConfigError."""
    content = await request.read()
    if not content:
        raise ConfigError("The request has no body: expected JSON")
    try:
        found = json.loads(content)
        json.dumps(found, ensure_ascii=False).encode()  # fails for half a surrogate pair, which no topic can store
        return found
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"The body of the request is not valid JSON: {error}") from error


async def _object(request: web.Request) -> dict[str, Any]:
    body = await _body(request)
    if not isinstance(body, dict):
        raise ConfigError("The body of the request is not a JSON object")
    return body


def _config(body: Any, *, with_nulls: bool = False) -> dict[str, Any]:
    """Return a configuration, whose values are texts: numbers and truth values become theirs. Raises ConfigError."""
    if not isinstance(body, dict):
        raise ConfigError("The configuration of a connector is missing: expected a JSON object of texts")
    found: dict[str, Any] = {}
    for key, value in body.items():
        if isinstance(value, dict | list):
            raise ConfigError(f"The value of {key} is not a text")
        if value is None and not with_nulls:
            continue
        found[key] = json.dumps(value) if isinstance(value, bool | int | float) else value
    return found


def _initial_target(text: Any) -> TargetState | None:
    allowed = {"RUNNING": TargetState.STARTED, "PAUSED": TargetState.PAUSED, "STOPPED": TargetState.STOPPED}
    if text is None:
        return None
    if not isinstance(text, str) or text.upper() not in allowed:
        raise ConfigError(f"initial_state is {text!r}: expected one of {', '.join(allowed)}")
    return allowed[text.upper()]


def _with_or_without_slash(path: str) -> str:
    """Kafka's workers take a path with a slash at its end too, and clients send it."""
    return path if path == "/" else path + "{slash:/?}"


def _flag(request: web.Request, name: str) -> bool:
    return bool(parse(name, Kind.BOOLEAN, request.query.get(name, "false")))


async def _in_thread(call: Callable[[], T]) -> T:
    """Return the result of a call that runs a plug-in's code, or waits for a broker. It may never return."""
    return await _result(call_in_thread("rest-call", call), TIMEOUT_S)


async def _result(done: Future[T], timeout_s: float) -> T:
    try:
        return await asyncio.wait_for(asyncio.wrap_future(done), timeout_s)
    except SystemExit as error:  # of a plug-in: it would end the event loop
        raise ConnectError(f"SystemExit: {error}") from error


def _location(connector: str) -> dict[str, str]:
    return {"Location": f"/connectors/{quote(connector, safe='')}"}


def _task(request: web.Request) -> TaskId:
    text = request.match_info["task"]
    if not text.isdecimal() or len(text) > TASK_DIGITS_MAX:
        raise NotFoundError(f"{text} is not the number of a task")
    return TaskId(request.match_info["connector"], int(text))


def _short(class_name: str) -> str:
    return class_name.rpartition(".")[2].removesuffix("Connector")
