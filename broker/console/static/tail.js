// Follows a topic. No record is left out; when the page cannot keep up it says how far it is behind.

import { fromAddress, toAddress } from "./address.js";
import { path, readLines } from "./api.js";
import { field, fill, h, notice, select } from "./dom.js";
import { count } from "./format.js";
import { exportButtons, recordTable } from "./records.js";

const ROWS_MAX = 500;

const DEFAULTS = { filter: "", partition: "", isolation: "read_uncommitted" };

export function tailTab(name) {
  const query = fromAddress(DEFAULTS);
  const rows = [];
  let controller = null;
  let received = 0;
  let drawn = false;
  const filter = h("input", { id: "filter", type: "text", spellcheck: "false", autocomplete: "off", maxlength: 1000, placeholder: "all records", value: query.filter });
  const partition = h("input", { id: "partition", type: "number", min: 0, placeholder: "all", value: query.partition });
  const isolation = select("isolation", [["read_uncommitted", "all"], ["read_committed", "committed only"]], query.isolation);
  const run = h("button", { type: "submit", class: "primary", id: "follow" }, "Follow");
  const state = h("p", { class: "muted small", id: "tail-state", role: "status" }, "Shows the records that arrive from now on.");
  const problems = h("div", null);
  const list = h("div", { class: "card" });

  async function start(event) {
    event.preventDefault();
    if (controller) return controller.abort();
    const own = (controller = new AbortController());
    for (const [key, control] of Object.entries({ filter, partition, isolation })) query[key] = control.value;
    toAddress(query, DEFAULTS);
    rows.length = received = 0;
    fill(problems);
    run.textContent = "Stop";
    try {
      await readLines(path`/topics/${name}/tail`, query, (line) => {
        if (line.records) {
          received += line.records.length;
          rows.unshift(...line.records.toReversed());
          rows.length = Math.min(rows.length, ROWS_MAX);
        }
        if (line.gap) problems.append(notice(line.gap, "bad"));
        if (line.problem) problems.append(notice(line.problem));
        if (line.behind !== undefined) {
          const shown = received > ROWS_MAX ? `, the newest ${ROWS_MAX} are shown` : "";
          state.textContent = `${count(received)} records received${shown}. ${line.behind ? `${count(line.behind)} offsets behind: records arrive faster than they are read, none is left out.` : "Up to date."}`;
          state.className = line.behind ? "notice" : "muted small";
        }
        later();
      }, own.signal);
      state.textContent += " Ended.";
    } catch (error) {
      if (error.name !== "AbortError") fill(problems, notice(error.message, "bad"));
      else state.textContent += " Stopped.";
    }
    run.textContent = "Follow";
    controller = null;
  }

  function later() {
    if (drawn) return;
    drawn = true;
    requestAnimationFrame(() => {
      drawn = false;
      draw();
    });
  }

  function draw() {
    fill(list, recordTable(name, rows, "Newest first", ["No new records", controller ? "Records appear as soon as they are produced." : "Follow the topic to see what arrives."]));
  }

  draw();
  return {
    root: h("div", null,
      h("form", { class: "form", submit: start }, field("Filter", filter, "wide"), field("Partition", partition), field("Transactions", isolation), run, exportButtons(name, () => rows)),
      state, problems, list),
    isRead: () => true, // by its own connection
    stop: () => controller?.abort(),
  };
}
