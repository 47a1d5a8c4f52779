import assert from "node:assert/strict";
import { test } from "node:test";

import { parseDiff } from "../../static/app/diff.js";

const DIFF = `--- a/plan.md
+++ b/plan.md
@@ -3,3 +3,4 @@
 # Plan
-Order from Hanse Marine at 5,088.00 euro.
+Order from Nordlicht at 4,846.40 euro.
+Two spares.
 End
`;

test("lines carry their numbers on both sides", () => {
  const found = parseDiff(DIFF);
  assert.deepEqual(
    found.rows.map(({ kind, old, new: fresh }) => [kind, old, fresh]),
    [["h", undefined, undefined], ["same", 3, 3], ["del", 4, undefined], ["add", undefined, 4], ["add", undefined, 5], ["same", 5, 6]],
  );
  assert.deepEqual([found.path, found.added, found.removed, found.isNew], ["plan.md", 2, 1, false]);
});

test("the words that changed are marked, a figure and a phrase as one", () => {
  const [del, add] = parseDiff(DIFF).rows.filter((row) => row.parts);
  const changed = (row) => row.parts.filter((part) => part.changed).map((part) => part.text);
  assert.deepEqual(changed(del), ["Hanse Marine", "5,088.00"]);
  assert.deepEqual(changed(add), ["Nordlicht", "4,846.40"]);
  assert.equal(del.parts.map((part) => part.text).join(""), del.text);
});

test("lines that look like headers are lines once a hunk has begun", () => {
  const found = parseDiff("--- /dev/null\n+++ b/x\n@@ -0,0 +1,2 @@\n+--- a\n++++ b\n");
  assert.equal(found.isNew, true);
  assert.deepEqual(found.rows.slice(1).map((row) => row.text), ["--- a", "+++ b"]);
});

test("what hides or turns text round is written out, in evidence of every kind", () => {
  const hostile = "a\u202eb\u200b\u00ad\u{e0041}\x1b[2J\u3164c\r";
  const shown = "a<202E>b<200B><AD><E0041><1B>[2J<3164>c<0D>";
  const [, row] = parseDiff(`--- /dev/null\n+++ b/x\n@@ -0,0 +1 @@\n+${hostile}d\n`).rows;
  assert.equal(row.text, `${shown}d`);
  assert.equal(parseDiff(`── command\n${hostile}d\r\n`).note, `── command\n${shown}d\n`);
});

test("what is not a diff breaks nothing", () => {
  for (const text of ["", "\n", "@@ nonsense", "hello\n", "@@ -1 +1 @@\n\\ No newline at end of file"]) parseDiff(text);
});

test("what says that it is no diff is shown whole, whatever its lines look like", () => {
  const text = "── command\n--- a\n+++ b\n@@ -1,1 +1,1 @@\n-ls\n+rm\n";
  assert.deepEqual([parseDiff(text).note, parseDiff(text).rows], [text, []]);
});

test("what stands before the hunks is kept whole", () => {
  assert.equal(parseDiff(`one\ntwo\n${DIFF}`).note, "one\ntwo");
});
