// On a phone the rows of a list are stacked (admin.css): each value then says which column it is of. Roles keep it a table
// for screen readers, which a table with other boxes is not by itself.
"use strict";
for (const table of document.querySelectorAll("#result_list, #usage-sums, .ph-stacks table")) {
  const titles = [...table.tHead.rows[0].cells].map((head) => (head.querySelector(".text") ?? head).textContent.trim());
  table.setAttribute("role", "table");
  for (const group of [table.tHead, ...table.tBodies]) group.setAttribute("role", "rowgroup");
  for (const head of table.tHead.rows[0].cells) head.setAttribute("role", "columnheader");
  for (const row of table.rows) row.setAttribute("role", "row");
  for (const cell of [...table.tBodies].flatMap((body) => [...body.rows]).flatMap((row) => [...row.cells])) {
    cell.setAttribute("role", cell.tagName === "TH" ? "rowheader" : "cell");
    if (titles[cell.cellIndex]) cell.dataset.label = titles[cell.cellIndex];
  }
}
