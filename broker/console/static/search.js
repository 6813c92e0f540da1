// Searches the records of a topic; matches appear while the broker reads.

import { fromAddress, toAddress } from "./address.js";
import { path, readLines } from "./api.js";
import { field, fill, h, notice, select, toast } from "./dom.js";
import { bytes, count } from "./format.js";
import { exportButtons, recordTable } from "./records.js";

const FILTERS_MAX = 30;
const DEFAULTS = { filter: "", partition: "", from_offset: "", to_offset: "", from_time: "", to_time: "", limit: "100", isolation: "read_uncommitted", form: "auto" };

export function searchTab(name) {
  const query = fromAddress(DEFAULTS);
  const rows = [];
  let controller = null;
  let isRead = false;
  const saved = new SavedFilters(name);
  const filter = h("input", { id: "filter", type: "text", spellcheck: "false", autocomplete: "off", maxlength: 1000, list: "saved-filters", placeholder: 'value.amount > 100 and not header.source = "test"', value: query.filter });
  const partition = h("input", { id: "partition", type: "number", min: 0, placeholder: "all", value: query.partition });
  const fromOffset = h("input", { id: "from-offset", type: "number", min: 0, value: query.from_offset });
  const toOffset = h("input", { id: "to-offset", type: "number", min: 0, value: query.to_offset });
  const fromTime = h("input", { id: "from-time", type: "datetime-local", step: 1, value: query.from_time });
  const toTime = h("input", { id: "to-time", type: "datetime-local", step: 1, value: query.to_time });
  const limit = select("limit", [["50", "50"], ["100", "100"], ["500", "500"]], query.limit);
  const isolation = select("isolation", [["read_uncommitted", "all"], ["read_committed", "committed only"]], query.isolation);
  const form = select("form", [["auto", "text, JSON, schema"], ["hex", "hexadecimal"]], query.form);
  const controls = { filter, partition, from_offset: fromOffset, to_offset: toOffset, from_time: fromTime, to_time: toTime, limit, isolation, form };
  const run = h("button", { type: "submit", class: "primary", id: "run" }, "Search");
  const problems = h("div", null);
  const undecoded = h("div", null);
  const bar = h("progress", { id: "progress", max: 1, value: 0, "aria-label": "Progress of the search" });
  const state = h("p", { class: "muted small", id: "search-state", role: "status" }, "A text alone is searched in key, value and headers.");
  const list = h("div", { class: "card" });

  async function start(event) {
    event?.preventDefault();
    if (controller) return controller.abort();
    const own = (controller = new AbortController());
    for (const [key, control] of Object.entries(controls)) query[key] = control.value;
    toAddress(query, DEFAULTS);
    rows.length = 0;
    fill(problems);
    fill(undecoded);
    fill(list);
    run.textContent = "Cancel";
    state.textContent = "Searching";
    bar.removeAttribute("value");
    let drawn = 0;
    const milliseconds = (text) => (text ? new Date(text).getTime() : "");
    const sent = { ...query, from_time: milliseconds(query.from_time), to_time: milliseconds(query.to_time) };
    try {
      await readLines(path`/topics/${name}/search`, sent, (line) => {
        if (line.record) rows.push(line.record);
        if (line.problem) problems.append(notice(line.problem));
        if (line.progress) showProgress(line.progress, line.done);
        if (Date.now() - drawn > 300) {
          drawn = Date.now();
          draw();
        }
      }, own.signal);
    } catch (error) {
      state.textContent = error.name === "AbortError" ? `Cancelled. ${state.textContent}` : "";
      if (error.name !== "AbortError") fill(problems, notice(error.message, "bad"));
    }
    if (bar.value === undefined || !bar.hasAttribute("value")) bar.value = 0;
    run.textContent = "Search";
    controller = null;
    draw();
  }

  function showProgress(progress, done) {
    bar.value = progress.total ? progress.scanned / progress.total : 1;
    state.textContent = `${count(progress.matches)} matches in ${count(progress.scanned)} of ${count(progress.total)} offsets, ${bytes(progress.bytes)} read${done ? `: ${done}` : ""}`;
    fill(undecoded, progress.undecoded ? notice(`${count(progress.undecoded)} keys and values were not opened by their schema; the filter saw their bytes. Hexadecimal ones name the reason.`) : null);
  }

  function draw() {
    fill(list, recordTable(name, rows, "Matches in the order in which they were found", ["No matches", controller ? "The search continues." : "Write a filter and start the search."]));
  }

  draw();
  return {
    root: h(
      "div",
      null,
      h("form", { class: "form", submit: (event) => start(event).catch((error) => toast(error.message)) },
        field("Filter", filter, "wide"), field("Partition", partition), field("From offset", fromOffset), field("Before offset", toOffset),
        field("From time", fromTime), field("Up to time", toTime), field("Most matches", limit), field("Transactions", isolation), field("Values as", form), run, saved.button(filter), saved.list, exportButtons(name, () => rows)),
      h("details", null, h("summary", { class: "small" }, "How to write a filter"), help()),
      problems, undecoded, bar, state, list,
    ),
    isRead: () => isRead,
    refresh() {
      // A link to a search, or the way back to one, shows what it finds.
      if (!isRead && Object.entries(DEFAULTS).some(([key, value]) => query[key] !== value)) start().catch((error) => toast(error.message));
      isRead = true;
    },
    stop: () => controller?.abort(),
  };
}

/** The filters that this browser keeps for a topic. */
class SavedFilters {
  #key;

  constructor(name) {
    this.#key = `filters of ${name}`;
    this.list = h("datalist", { id: "saved-filters" });
    this.#show();
  }

  /** A button that keeps the filter of a field, or forgets it. */
  button(field) {
    return h("button", { type: "button", id: "save-filter", click: () => {
      const text = field.value.trim();
      if (!text) return toast("Write a filter first.");
      const known = this.#filters();
      localStorage.setItem(this.#key, JSON.stringify(known.includes(text) ? known.filter((each) => each !== text) : [text, ...known].slice(0, FILTERS_MAX)));
      toast(known.includes(text) ? "This browser no longer suggests the filter." : "This browser suggests the filter for this topic.");
      this.#show();
    } }, "Save or forget filter");
  }

  #filters() {
    try {
      const found = JSON.parse(localStorage.getItem(this.#key) ?? "[]");
      return Array.isArray(found) ? found.filter((each) => typeof each === "string") : [];
    } catch {
      return []; // something else wrote there
    }
  }

  #show() {
    fill(this.list, this.#filters().map((each) => h("option", { value: each })));
  }
}

function help() {
  const examples = [
    ["error", "the text in key, value or a header, in any case"],
    ['key = "user-17"', "the key is exactly this"],
    ["value.order.total >= 100", "a member of a JSON value, also of one that a schema opens"],
    ["value.items.0.sku starts A", "the first element of an array"],
    ["header.source = web and not value contains test", "a header, and a part of the value"],
    ["timestamp >= 2024-05-01T12:00:00Z", "produced from this time on"],
    ["partition = 3 and (offset < 10 or size > 1000)", "numbers, with brackets"],
  ];
  return h("dl", { class: "facts" }, examples.map(([text, meaning]) => [h("dt", null, h("code", null, text)), h("dd", null, meaning)]));
}
