// How partitions are spread, those that are not as they should be, and moves in progress.

import { link } from "./address.js";
import { getJson } from "./api.js";
import { fill, h, notice } from "./dom.js";
import { bytes, count } from "./format.js";
import { table } from "./table.js";
import { stateTag } from "./topic.js";

export function partitionsPage() {
  const shares = h("section", { class: "card skeleton" });
  const bad = h("section", { class: "card" });
  const moves = h("section", { class: "card" });
  return {
    title: "Partitions",
    root: h("div", null, h("div", { class: "head" }, h("h1", null, "Partitions")), shares, moves, bad),
    async refresh(signal) {
      const found = await getJson("/partitions", {}, signal);
      const all = Math.max(1, found.shares.reduce((sum, row) => sum + row.replicas, 0));
      shares.className = "card";
      fill(shares, h("h2", null, "By broker"), table("Skew is the difference to the mean.", [
        { title: "Broker", of: (row) => row.broker },
        { title: "Leaders", number: true, of: (row) => count(row.leaders) },
        { title: "Leader skew", number: true, of: (row) => signed(row.leader_skew_percent) },
        { title: "Replicas", number: true, of: (row) => count(row.replicas) },
        { title: "Replica skew", number: true, of: (row) => signed(row.replica_skew_percent) },
        { title: "Share", of: (row) => [h("progress", { max: 1, value: row.replicas / all, "aria-label": `Share of broker ${row.broker}` }), h("div", { class: "small muted" }, `${Math.round((100 * row.replicas) / all)} %`)] },
      ], found.shares));
      fill(moves, h("h2", null, "Reassignments"), notice(found.reassignments_problem), table("", [
        { title: "Partition", of: (row) => [h("a", { href: link`topics/${row.topic}/partitions` }, row.topic), `-${row.partition}`] },
        { title: "Replicas", of: (row) => row.replicas.join(", ") },
        { title: "Adding", of: (row) => row.adding.join(", ") || "–" },
        { title: "Removing", of: (row) => row.removing.join(", ") || "–" },
        { title: "Progress", of: progress },
      ], found.reassignments, { none: ["No partition moves", "Moves appear here while kafka-reassign-partitions runs."] }));
      fill(bad, h("h2", null, `Not as they should be: ${count(found.bad_count)}`), table("", [
        { title: "Partition", of: (row) => [h("a", { href: link`topics/${row.topic}/partitions` }, row.topic), `-${row.partition}`] },
        { title: "State", of: (row) => stateTag(row.state) },
        { title: "Leader", of: (row) => (row.leader < 0 ? "none" : row.leader) },
        { title: "Replicas", of: (row) => row.replicas.join(", ") },
        { title: "In sync", of: (row) => row.isr.join(", ") },
      ], found.bad, { none: ["Every partition is in order", "Each is led by its preferred leader, with all replicas in sync."] }));
    },
  };
}

/** What the adding replicas have copied, and how many are in sync. A bar that is nearly full is no warning here. */
function progress(row) {
  const share = row.total_bytes ? row.copied_bytes / row.total_bytes : row.adding.length ? row.caught_up / row.adding.length : 1;
  const copied = row.total_bytes === null ? "sizes unknown" : `${bytes(row.copied_bytes)} of ${bytes(row.total_bytes)} copied`;
  const text = `${copied}, ${row.caught_up} of ${row.adding.length} in sync`;
  return [h("progress", { max: 1, value: share, "aria-label": `Progress of ${row.topic}-${row.partition}` }), h("div", { class: "small muted" }, text)];
}

function signed(percent) {
  return `${percent > 0 ? "+" : ""}${percent} %`;
}
