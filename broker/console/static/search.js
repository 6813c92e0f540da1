// Searches the records of a topic; matches appear while the broker reads.

import { path, readLines } from "./api.js";
import { field, fill, h, notice, select, toast } from "./dom.js";
import { bytes, count } from "./format.js";
import { exportButtons, recordTable } from "./records.js";

export function searchTab(name) {
  const rows = [];
  let controller = null;
  const filter = h("input", { id: "filter", type: "text", spellcheck: "false", autocomplete: "off", maxlength: 1000, placeholder: 'value.amount > 100 and not header.source = "test"' });
  const partition = h("input", { id: "partition", type: "number", min: 0, placeholder: "all" });
  const fromOffset = h("input", { id: "from-offset", type: "number", min: 0 });
  const toOffset = h("input", { id: "to-offset", type: "number", min: 0 });
  const fromTime = h("input", { id: "from-time", type: "datetime-local", step: 1 });
  const toTime = h("input", { id: "to-time", type: "datetime-local", step: 1 });
  const limit = select("limit", [["50", "50"], ["100", "100"], ["500", "500"]], "100");
  const isolation = select("isolation", [["read_uncommitted", "all"], ["read_committed", "committed only"]], "read_uncommitted");
  const run = h("button", { type: "submit", class: "primary", id: "run" }, "Search");
  const problems = h("div", null);
  const bar = h("progress", { id: "progress", max: 1, value: 0, "aria-label": "Progress of the search" });
  const state = h("p", { class: "muted small", id: "search-state", role: "status" }, "A text alone is searched in key, value and headers.");
  const list = h("div", { class: "card" });

  async function start(event) {
    event.preventDefault();
    if (controller) return controller.abort();
    const own = (controller = new AbortController());
    rows.length = 0;
    fill(problems);
    fill(list);
    run.textContent = "Cancel";
    state.textContent = "Searching";
    bar.removeAttribute("value");
    let drawn = 0;
    const milliseconds = (input) => (input.value ? new Date(input.value).getTime() : "");
    const query = {
      filter: filter.value, partition: partition.value, from_offset: fromOffset.value, to_offset: toOffset.value,
      from_time: milliseconds(fromTime), to_time: milliseconds(toTime), limit: limit.value, isolation: isolation.value,
    };
    try {
      await readLines(path`/topics/${name}/search`, query, (line) => {
        if (line.record) rows.push(line.record);
        if (line.problem) problems.append(notice(line.problem));
        if (line.progress) showProgress(line.progress, line.done);
        if (Date.now() - drawn > 300) {
          drawn = Date.now();
          draw();
        }
      }, own.signal);
    } catch (error) {
      if (error.name === "AbortError") state.textContent = `Cancelled. ${state.textContent}`;
      else fill(problems, notice(error.message, "bad"));
    }
    if (bar.value === undefined || !bar.hasAttribute("value")) bar.value = 0;
    run.textContent = "Search";
    controller = null;
    draw();
  }

  function showProgress(progress, done) {
    bar.value = progress.total ? progress.scanned / progress.total : 1;
    state.textContent = `${count(progress.matches)} matches in ${count(progress.scanned)} of ${count(progress.total)} offsets, ${bytes(progress.bytes)} read${done ? `: ${done}` : ""}`;
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
        field("From time", fromTime), field("Up to time", toTime), field("Most matches", limit), field("Transactions", isolation), run, exportButtons(name, () => rows)),
      h("details", null, h("summary", { class: "small" }, "How to write a filter"), help()),
      problems, bar, state, list,
    ),
    stop: () => controller?.abort(),
  };
}

function help() {
  const examples = [
    ["error", "the text in key, value or a header, in any case"],
    ['key = "user-17"', "the key is exactly this"],
    ["value.order.total >= 100", "a member of a JSON value"],
    ["value.items.0.sku starts A", "the first element of an array"],
    ["header.source = web and not value contains test", "a header, and a part of the value"],
    ["timestamp >= 2024-05-01T12:00:00Z", "produced from this time on"],
    ["partition = 3 and (offset < 10 or size > 1000)", "numbers, with brackets"],
  ];
  return h("dl", { class: "facts" }, examples.map(([text, meaning]) => [h("dt", null, h("code", null, text)), h("dd", null, meaning)]));
}
