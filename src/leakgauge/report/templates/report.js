"use strict";
// The page is whole without this. It adds: a table to sort and filter, and a close look at one record after another.

for (const element of document.querySelectorAll(".scripted")) element.hidden = false;

function makeSortable(table) {
  const home = [...table.tBodies].map((body) => [body, [...body.rows]]); // as it was written: grouped by defense
  const rows = home.flatMap(([, own]) => own).filter((row) => !row.classList.contains("group"));
  const flat = document.createElement("tbody");
  const heads = [...table.tHead.rows[0].cells];

  const keyOf = (row, column) => {
    if (column < 2) return row.cells[column].textContent.trim();
    const cell = row.cells[column];
    return cell && cell.dataset.key !== undefined ? Number(cell.dataset.key) : NaN;
  };
  const compare = (a, b, turned) => {
    if (typeof a === "string") return turned * a.localeCompare(b);
    if (Number.isNaN(a) || Number.isNaN(b)) return Number.isNaN(a) - Number.isNaN(b); // unknown is always last
    return turned * (a - b);
  };

  function sort(column) {
    const before = heads[column].getAttribute("aria-sort");
    const order = column < 2 ? ["ascending", "descending"] : ["descending", "ascending"];
    const next = order[order.indexOf(before) + 1]; // the third time: back to the groups
    for (const head of heads) head.removeAttribute("aria-sort");
    for (const [body, own] of home) body.append(...own);
    table.classList.toggle("flat", next !== undefined);
    flat.remove();
    if (next === undefined) return;
    heads[column].setAttribute("aria-sort", next);
    const turned = next === "ascending" ? 1 : -1;
    const sorted = rows.map((row) => [keyOf(row, column), row]).sort((a, b) => compare(a[0], b[0], turned));
    flat.append(...sorted.map(([, row]) => row));
    table.append(flat);
  }

  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => sort(column));
  });
}

function makeFilter(form, table) {
  const rows = [...table.querySelectorAll("tr[data-attack]")];
  const count = form.querySelector("output");
  function apply() {
    const wanted = Object.entries(Object.fromEntries(new FormData(form))).filter(([, value]) => value);
    for (const row of rows) {
      // A floor stands for every defense and every attacker: only a chosen attack can hide it.
      const asked = row.classList.contains("baseline") ? wanted.filter(([name]) => name === "attack") : wanted;
      row.hidden = !asked.every(([name, value]) => row.dataset[name] === value);
    }
    for (const group of table.querySelectorAll("tr.group")) {
      group.hidden = ![...group.parentNode.rows].some((row) => row !== group && !row.hidden);
    }
    count.textContent = `${rows.filter((row) => !row.hidden).length} of ${rows.length} rows`;
  }
  form.addEventListener("input", apply);
  form.addEventListener("reset", () => setTimeout(apply));
  form.addEventListener("submit", (event) => event.preventDefault());
  apply();
}

function makeCloseLook(dialog) {
  const stand = dialog.querySelector(".stand");
  const steps = [...dialog.querySelectorAll("[data-step]")];
  let items = [];
  let at = 0;

  function show(index) {
    at = Math.max(0, Math.min(items.length - 1, index));
    const copy = items[at].cloneNode(true);
    copy.querySelector(".open").remove();
    stand.replaceChildren(copy);
    dialog.querySelector(".where").textContent = items[at].closest(".exhibit").dataset.title;
    dialog.querySelector(".counter").textContent = `record ${at + 1} of ${items.length} on this page, the most exposed first`;
    for (const button of steps) button.disabled = items[at + Number(button.dataset.step)] === undefined;
  }

  for (const item of document.querySelectorAll(".exhibit .item")) {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "open";
    button.setAttribute("aria-haspopup", "dialog");
    button.setAttribute("aria-label", `Look closely at ${item.querySelector(".place").textContent}`);
    button.textContent = "enlarge";
    button.addEventListener("click", () => {
      items = [...item.closest(".exhibit").querySelectorAll(".item")];
      show(items.indexOf(item));
      dialog.showModal();
    });
    (item.querySelector(".both") ?? item).append(button);
  }
  for (const button of steps) button.addEventListener("click", () => show(at + Number(button.dataset.step)));
  dialog.addEventListener("keydown", (event) => {
    const targets = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: items.length - 1 };
    if (!(event.key in targets) || event.altKey || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    show(targets[event.key]);
  });
  dialog.addEventListener("click", (event) => {
    if (event.target === dialog) dialog.close(); // beside it
  });
  dialog.addEventListener("close", () => {
    const folded = items[at].closest("details");
    if (folded) folded.open = true;
    items[at].querySelector(".open").focus(); // where one has got to, not where one began
  });
}

for (const form of document.querySelectorAll("form.filters")) {
  const table = form.parentNode.querySelector("table");
  makeFilter(form, table);
  makeSortable(table);
}
for (const dialog of document.querySelectorAll("dialog.close-look")) makeCloseLook(dialog);
