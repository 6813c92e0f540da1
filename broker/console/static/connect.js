// Connectors of Kafka Connect: the list, and one connector with its tasks, errors, offsets, and changes if the broker allows them.

import { fromAddress, link, toAddress } from "./address.js";
import { getJson, mayWrite, path, sendJson } from "./api.js";
import { dialog, field, fill, h, notice, searchInput, stat, tag, toast } from "./dom.js";
import { count, plural } from "./format.js";
import { pager, table } from "./table.js";

const LIMIT = 50;
const DEFAULTS = { search: "", offset: 0 };
const STATES = { RUNNING: "good", FAILED: "bad", STOPPED: "", DESTROYED: "" };
const PAUSE = ["pause", "Pause", "The tasks stay assigned and stop copying records."];
const RESUME = ["resume", "Resume", "The connector and its tasks go on where they ended."];
const STOP = ["stop", "Stop", "The tasks end. Configuration and offsets are kept."];
const RESTARTS = [
  ["restart", "Restart connector", "The connector itself is started again; its tasks go on."],
  ["restart-all", "Restart all", "The connector and all of its tasks are started again."],
];
const RESTART_FAILED = ["restart-failed", "Restart failed", "The connector and its tasks are started again where they have failed."];
/** What can be done with a connector in a state, besides what can be done in every other. */
const CHANGES = { PAUSED: [RESUME, STOP], STOPPED: [RESUME] };

export function connectorsPage() {
  const query = fromAddress(DEFAULTS);
  const list = h("div", { class: "card skeleton" });
  const facts = h("div", null);
  const search = searchInput(query.search, change);

  function change(parts) {
    Object.assign(query, parts);
    toAddress(query, DEFAULTS);
    draw().catch((error) => fill(facts, notice(error.message, "bad")));
  }

  async function draw(signal) {
    const asked = JSON.stringify(query);
    const page = await getJson("/connectors", { ...query, limit: LIMIT }, signal);
    if (asked !== JSON.stringify(query)) return;
    list.className = "card";
    fill(facts, missing(page), h("div", { class: "stats" }, stat("failed connectors", count(page.failed_connectors), page.failed_connectors ? "bad" : "good"),
      stat("failed tasks", count(page.failed_tasks), page.failed_tasks ? "bad" : "good")));
    fill(list, table(`${plural(page.total, "connector")}, as ${page.worker} reports them. Those with failures come first.`, [
      { title: "Connector", className: "name", of: (row) => h("a", { href: link`connect/${row.name}` }, row.name) },
      { title: "Type", of: (row) => tag(row.type) },
      { title: "Class", of: (row) => h("span", { title: row.connector_class }, row.connector_class.split(".").at(-1) || "–") },
      { title: "State", of: (row) => stateTag(row.state) },
      { title: "Worker", of: (row) => h("span", { class: "small" }, row.worker || "–") },
      { title: "Tasks", of: (row) => taskTags(row.tasks) },
      { title: "Last error", of: (row) => h("div", { class: "cut" }, row.problem) },
    ], page.connectors, { onRow: (row) => (location.hash = link`connect/${row.name}`), none: ["No connectors", "Create one with a POST request to /connectors of a worker."] }),
    page.total > LIMIT ? pager(query.offset, LIMIT, page.total, (offset) => change({ offset })) : null);
  }

  return {
    title: "Connect",
    root: h("div", null, h("div", { class: "head" }, h("h1", null, "Connect")), h("div", { class: "form" }, field("Search", search, "wide")), facts, list),
    refresh: draw,
  };
}

export function connectorPage([name]) {
  const facts = h("div", { class: "skeleton" });
  const actions = h("div", { class: "end" });
  const tasks = h("section", { class: "card" });
  const offsets = new Offsets(name);

  async function draw(signal) {
    const [found, isWritable] = await Promise.all([getJson(path`/connectors/${name}`, {}, signal), mayWrite()]);
    const { connector } = found;
    facts.className = "";
    fill(facts, missing(found), h("div", { class: "stats" }, stat("state", connector.state || "–", STATES[connector.state] ?? "warn"), stat("type", connector.type),
      stat("tasks", count(connector.tasks.length)), stat("failed tasks", count(connector.tasks.filter(hasFailed).length), connector.tasks.some(hasFailed) ? "bad" : "good")),
    h("p", { class: "muted small" }, `${connector.connector_class || "Unknown class"} on ${connector.worker || "no worker"}, as ${found.worker} reports it`),
    connector.problem ? h("section", { class: "card" }, h("h2", null, "Last error"), error(name, connector)) : null);
    fill(tasks, h("h2", null, "Tasks"), taskTable(name, connector, isWritable && ((chosen) => confirmed(name, chosen, draw))));
    fill(actions, isWritable ? changes(connector).map((each) => h("button", { type: "button", id: each[0], click: () => confirmed(name, each, draw) }, each[1])) : null);
    offsets.draw(signal);
  }

  return {
    title: name,
    root: h("div", null, h("div", { class: "head" }, h("div", { class: "crumbs" }, h("a", { href: "#/connect" }, "Connect")), h("h1", null, name), actions), facts, tasks, offsets.root),
    refresh: draw,
  };
}

function changes(connector) {
  const failed = [connector, ...connector.tasks].some(hasFailed) ? [RESTART_FAILED] : [];
  return [...failed, ...RESTARTS, ...(CHANGES[connector.state] ?? [PAUSE, STOP])];
}

function taskTable(name, connector, change) {
  return table("", [
    { title: "Task", number: true, of: (row) => row.id },
    { title: "State", of: (row) => stateTag(row.state) },
    { title: "Worker", of: (row) => row.worker || "–" },
    { title: "Last error", of: (row) => (row.problem ? error(`${name}, task ${row.id}`, row) : "") },
    ...(change ? [{ title: "", of: (row) => h("button", { type: "button", "data-key": `restart-${row.id}`, "aria-label": `Restart task ${row.id}`, click: () => change([`tasks/${row.id}/restart`, `Restart task ${row.id}`, "The task is started again."]) }, "Restart") }] : []),
  ], connector.tasks, { none: ["No tasks", "A connector that is stopped, or has not started yet, has none."] });
}

/** The line that names an error; it opens the whole trace. */
function error(title, row) {
  return h("button", { type: "button", class: "quiet", "data-key": `trace-${title}`, click: () => dialog(`Last error of ${title}`, h("pre", { class: "whole", tabindex: 0 }, row.trace)) }, h("span", { class: "cut" }, row.problem));
}

/** The offsets of a connector, which are read beside the rest of the page: a worker may need seconds for them. */
class Offsets {
  #name;
  #offset = 0;
  #list = h("div", null, h("p", { class: "muted" }, "…"));
  #isReading = false;

  constructor(name) {
    this.#name = name;
    this.root = h("section", { class: "card", id: "offsets" }, h("h2", null, "Offsets"), this.#list);
  }

  async draw(signal) {
    if (this.#isReading) return;
    this.#isReading = true;
    try {
      const page = await getJson(path`/connectors/${this.#name}/offsets`, { offset: this.#offset, limit: LIMIT }, signal);
      fill(this.#list, table(`${count(page.total)} partitions of the source or of topics`, [
        { title: "Partition", className: "value", of: (row) => row.partition },
        { title: "Offset", className: "value", of: (row) => row.offset },
      ], page.offsets, { none: ["No offsets", "The connector has not committed any."] }),
      page.total > LIMIT ? pager(this.#offset, LIMIT, page.total, (offset) => { this.#offset = offset; this.draw(signal); }) : null);
    } catch (problem) {
      if (problem.name !== "AbortError") fill(this.#list, notice(problem.message, "bad"));
    } finally {
      this.#isReading = false;
    }
  }
}

/** Asks whether to make a change, and makes it. */
function confirmed(name, [action, title, effect], done) {
  const result = h("div", null);
  const run = async () => {
    try {
      toast((await sendJson("POST", `${path`/connectors/${name}`}/${action}`)).done);
      opened.close();
      await done();
    } catch (problem) {
      fill(result, notice(problem.message, "bad"));
    }
  };
  const opened = dialog(`${title}: ${name}`, h("p", null, effect), h("div", { class: "form" }, h("button", { type: "button", class: "danger", id: "confirm", click: run }, title)), result);
}

function missing(page) {
  return page.unavailable.map((each) => notice(`Worker ${each.worker} did not respond: ${each.reason}.`));
}

const hasFailed = (each) => each.state === "FAILED";

function stateTag(state) {
  return state ? tag(state, STATES[state] ?? "warn") : "–";
}

function taskTags(tasks) {
  const found = Object.entries(tasks);
  return found.length ? found.map(([state, number]) => [tag(`${count(number)} ${state}`, STATES[state] ?? "warn"), " "]) : "–";
}
