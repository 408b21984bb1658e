// Token views: one or several decodes on one clock. Plain DOM, textContent only: titles and tokens are untrusted.
// `model` is an anywidget model, or the small stand-in of a static page.

const css = `
.dg{--ink:var(--jp-content-font-color1,#1b1b1b);--dim:var(--jp-content-font-color2,#5a5a5a);--line:var(--jp-border-color2,#c9c9c9);--paper:var(--jp-layout-color1,#fff);--soft:var(--jp-layout-color2,#f3f3f3);
 --new:#e69f00;--done:#0072b2;--bad:#b34a00;--good:#00704f;--hit:#cc79a7;color:var(--ink);background:var(--paper);font:13px/1.45 var(--jp-content-font-family,system-ui,sans-serif);padding:8px;box-sizing:border-box}
@media (prefers-color-scheme:dark){.dg.page{--ink:#e8e8e8;--dim:#a8a8a8;--line:#4a4a4a;--paper:#161616;--soft:#242424;--done:#56b4e9;--bad:#ff8f4d;--good:#2fc496}}
body[data-jp-theme-light="false"] .dg{--done:#56b4e9;--bad:#ff8f4d;--good:#2fc496}
.dg *{box-sizing:border-box}
.dg .bar{display:flex;gap:8px;align-items:center;flex-wrap:wrap;margin-bottom:8px}
.dg .bar input[type=range]{flex:1;min-width:160px}
.dg button,.dg select{font:inherit;color:inherit;background:var(--soft);border:1px solid var(--line);border-radius:4px;padding:2px 8px;min-width:30px}
.dg :focus-visible{outline:2px solid var(--new);outline-offset:1px}
.dg .cols{display:grid;grid-template-columns:minmax(0,1.6fr) minmax(0,1fr);gap:14px}
.dg .cols.even{grid-template-columns:repeat(auto-fit,minmax(300px,1fr))}
@media (max-width:700px){.dg .cols{grid-template-columns:minmax(0,1fr)}}
.dg h4{margin:0 0 4px;font-size:13px}
.dg .block{border-left:3px solid var(--line);padding:2px 0 2px 6px;margin-bottom:6px}
.dg .block.now{border-color:var(--new)}
.dg .block small{color:var(--dim)}
.dg .toks{display:flex;flex-wrap:wrap;gap:2px}
.dg .t{font:12px/1.5 var(--jp-code-font-family,ui-monospace,monospace);padding:0 3px;border:1px solid transparent;border-bottom-width:2px;border-radius:3px;white-space:pre;min-width:1ch;cursor:default}
.dg .t.masked{color:var(--dim);border-color:var(--line);border-style:dotted}
.dg .t.draft{font-style:italic;color:var(--dim);border-bottom:2px dashed var(--line)}
.dg .t.new{border-color:var(--new);background:color-mix(in srgb,var(--new) 26%,transparent);font-weight:600}
.dg .t.done{border-bottom-color:color-mix(in srgb,var(--done) calc(var(--c)*100%),transparent)}
.dg .t.draft,.dg .t.done{background:color-mix(in srgb,var(--done) calc(var(--c)*22%),transparent)}
.dg .t.wrong{border:2px solid var(--bad);text-decoration:underline wavy var(--bad)}
.dg .t.lit{outline:2px solid var(--hit)}
.dg .t.fork{box-shadow:-3px 0 0 var(--bad)}
.dg table{border-collapse:collapse;width:100%;font-size:12px}
.dg td,.dg th{padding:1px 6px 1px 0;text-align:left;vertical-align:top;font-weight:normal}
.dg th{color:var(--dim)}
.dg tr.target td{font-weight:600}
.dg .badge{border:1px solid var(--bad);color:var(--bad);border-radius:3px;padding:0 4px;font-size:11px}
.dg .tell{min-height:3.2em;border-top:1px solid var(--line);margin-top:8px;padding-top:4px;color:var(--dim)}
.dg svg{width:100%;height:52px;display:block;background:var(--soft);margin-top:6px}
.dg .say{color:var(--dim)}
.dg .ok{color:var(--good)} .dg .ko{color:var(--bad)}`;

const el = (tag, cls, text) => { const n = document.createElement(tag); if (cls) n.className = cls; if (text != null) n.textContent = text; return n; };
const column = (view, Kind) => new Kind(view.buffer.slice(view.byteOffset, view.byteOffset + view.byteLength));
const shown = s => s.replace(/\n/g, "⏎").replace(/^ (?=.)/, "").replace(/^ $/, "␣") || "∅";

// A run's bytes become, per position, the list of what happened there: [step, token, confidence, committed].
export function decode(run) {
  const per = column(run.bytes.count, Uint16Array), pos = column(run.bytes.pos, Uint16Array), tok = column(run.bytes.tok, Uint16Array);
  const conf = column(run.bytes.conf, Uint8Array), flag = column(run.bytes.flag, Uint8Array), altOf = column(run.bytes.alt_of, Uint32Array), altTok = column(run.bytes.alt_tok, Uint16Array), altP = column(run.bytes.alt_p, Uint8Array);
  const events = Array.from({ length: run.tokens }, () => []), alts = new Map(), k = run.top;
  altOf.forEach((e, i) => alts.set(e, Array.from({ length: k }, (_, j) => [altTok[i * k + j], altP[i * k + j] / 255]).filter(a => a[1] > 0)));
  let e = 0;
  per.forEach((n, step) => { for (let i = 0; i < n; i++, e++) events[pos[e]].push({ step, tok: tok[e], conf: conf[e] / 255, committed: flag[e] === 1, alt: alts.get(e) }); });
  return events;
}
export function at(list, step) {                     // the last event up to a step
  let lo = 0, hi = list.length;
  while (lo < hi) { const m = (lo + hi) >> 1; if (list[m].step <= step) lo = m + 1; else hi = m; }
  return lo ? list[lo - 1] : null;
}

function decodeView(data, run, tell, light) {
  const root = el("div"), events = decode(run), cells = [], S = data.strings;
  if (run.label) root.append(el("h4", "", run.label));
  const status = el("div", "say"), blocks = [];
  root.append(status);
  const grid = el("div"); grid.setAttribute("role", "grid"); grid.setAttribute("aria-label", run.label ? `response tokens, ${run.label}` : "response tokens");
  for (let b = 0; b * run.block < run.tokens; b++) {
    if (run.block === 1 && b % 32) continue;         // a left-to-right decode is shown in lines of 32
    const width = run.block === 1 ? 32 : run.block, box = el("div", "block"), row = el("div", "toks"); box.setAttribute("role", "rowgroup"); row.setAttribute("role", "row");
    const label = el("small", "", run.block === 1 ? `tokens ${b + 1}–${Math.min(b + 32, run.tokens)}` : `block ${b + 1}`);
    label.setAttribute("aria-hidden", "true"); box.setAttribute("aria-label", label.textContent); box.append(label, row);
    for (let p = b * run.block; p < Math.min(b * run.block + width, run.tokens); p++) {
      const c = el("span", "t masked", "·"); c.tabIndex = p ? -1 : 0; c.dataset.p = p; c.setAttribute("role", "gridcell");
      cells[p] = c; row.append(c);
    }
    blocks.push([box, b * run.block, width]); grid.append(box);
  }
  let step = 0;
  const explain = p => {
    const e = at(events[p], step), done = events[p].find(x => x.committed), when = done ? `committed at step ${done.step + 1}` : "never committed";
    const last = events[p].filter(x => x.step <= step && x.alt).pop();
    const alts = last ? " · alternatives: " + last.alt.map(([t, q]) => `${shown(S[t])} ${(100 * q).toFixed(0)}%`).join(", ") : "";
    tell(`token ${p + 1}: ${e ? `“${shown(S[e.tok])}”, ${e.committed ? "committed" : "draft"}, confidence ${(100 * e.conf).toFixed(0)}%` : "not looked at yet"} · ${when}${alts}`);
  };
  const find = ev => { const c = ev.target.closest && ev.target.closest(".t"); return c ? +c.dataset.p : null; };
  grid.addEventListener("pointerover", ev => { const p = find(ev); if (p != null) explain(p); });
  grid.addEventListener("focusin", ev => { const p = find(ev); if (p != null) explain(p); });
  grid.addEventListener("keydown", ev => {
    const p = find(ev), d = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: 8, ArrowUp: -8 }[ev.key];
    if (p == null || !d) return;
    ev.preventDefault(); ev.stopPropagation();
    const q = Math.min(Math.max(p + d, 0), run.tokens - 1);
    cells[p].tabIndex = -1; cells[q].tabIndex = 0; cells[q].focus();
  });
  root.append(grid);
  const draft = () => { let d = null; for (const x of run.drafts) if (x.step <= step) d = x; return d && d.slots ? d : null; };
  return {
    root, cells, draft, run, events,
    show(s, drafts) {
      step = s;
      const d = draft(), wrong = new Set(d ? d.faults.flatMap(f => f.places) : []);
      let left = 0;
      cells.forEach((c, p) => {
        const e = s < 0 ? null : at(events[p], s), state = !e ? "masked" : e.committed ? (e.step === s ? "new" : "done") : drafts ? "draft" : "masked";
        if (!e || !e.committed) left++;
        const text = state === "masked" ? "·" : shown(S[e.tok]);
        if (c.textContent !== text) c.textContent = text;
        const cls = "t " + state + (wrong.has(p) && state !== "masked" ? " wrong" : "") + (run.fork === p ? " fork" : "") + (light && light.has(p) ? " lit" : "");
        if (c.className !== cls) c.className = cls;
        c.style.setProperty("--c", e ? e.conf.toFixed(2) : 0);
      });
      blocks.forEach(([box, a, w]) => box.classList.toggle("now", s >= 0 && run.starts[s] >= a && run.starts[s] < a + w));
      const over = s >= run.steps - 1;
      status.textContent = s < 0 ? "not begun" : `forward ${run.forwards[s]} of ${run.forwards[run.steps - 1]} · ${run.ms[s]} ms · ${run.tokens - left} of ${run.tokens} tokens` + (over ? ` · ${run.verdict}` : "");
      status.className = "say" + (over ? (run.valid ? " ok" : " ko") : "");
      return left;
    },
  };
}

function ranking(data, view, highlight) {
  const root = el("div");
  if (data.history.length) { root.append(el("h4", "", "History, latest first"), el("div", "say", data.history.join("; "))); }
  const title = el("h4", "", "Draft ranking"), note = el("div", "say"), table = el("table"), n = data.pool.length, rows = [];
  title.style.marginTop = "8px";
  const head = el("tr"); ["", "candidate", "before", ""].forEach(x => head.append(el("th", "", x))); table.append(head);
  for (let k = 0; k < n; k++) { const r = el("tr"), cs = [0, 1, 2, 3].map(() => el("td")); cs.forEach(c => r.append(c)); cs[0].textContent = k + 1; rows.push([r, cs]); table.append(r);
    const on = v => () => highlight(v ? k : null); r.tabIndex = 0; r.addEventListener("pointerenter", on(true)); r.addEventListener("pointerleave", on(false)); r.addEventListener("focus", on(true)); r.addEventListener("blur", on(false)); }
  const list = el("div"); list.style.marginTop = "4px";
  root.append(title, note, table, list);
  return { root, show() {
    const d = view.draft(), slots = d ? d.slots : null, target = data.pool.findIndex(c => c.target);
    note.textContent = !slots ? "The answer has not begun: below, the retriever's order." : d.faults.length ? "Draft with faults; an invalid answer falls back to the retriever's order." : "No fault so far.";
    rows.forEach(([r, cs], k) => {
      const c = slots ? (k < slots.length ? slots[k] : null) : k;
      const bad = d ? d.faults.filter(f => f.slot === k) : [];
      cs[1].textContent = c == null ? (slots && k < slots.length ? "?" : "–") : `${data.pool[c].name} ${data.pool[c].title}`;
      cs[2].textContent = c == null ? "" : c + 1;
      cs[3].replaceChildren(...bad.map(f => { const x = el("span", "badge", f.kind.replace("_", " ")); x.title = f.detail; return x; }), ...(c != null && c === target ? [el("span", "", " ◀ held out")] : []));
      r.className = c != null && c === target ? "target" : "";
    });
    list.replaceChildren(...(d ? d.faults.filter(f => f.slot == null).map(f => { const x = el("div"); x.append(el("span", "badge", f.kind.replace("_", " ")), document.createTextNode(" " + f.detail)); return x; }) : []));
  } };
}

function curve(view) {
  const ns = "http://www.w3.org/2000/svg", svg = document.createElementNS(ns, "svg"), n = view.run.steps;
  svg.setAttribute("viewBox", "0 0 1000 100"); svg.setAttribute("preserveAspectRatio", "none"); svg.setAttribute("role", "img"); svg.setAttribute("aria-label", "mean confidence of what is open, and share of tokens still masked, by step");
  const x = s => n > 1 ? 1000 * s / (n - 1) : 0, line = (f, color, dash) => { const p = document.createElementNS(ns, "polyline");
    p.setAttribute("points", Array.from({ length: n }, (_, s) => `${x(s).toFixed(1)},${(96 - 92 * f(s)).toFixed(1)}`).join(" ")); p.setAttribute("fill", "none"); p.style.stroke = color; p.setAttribute("stroke-width", "2"); p.setAttribute("vector-effect", "non-scaling-stroke"); if (dash) p.setAttribute("stroke-dasharray", "6 4"); svg.append(p); };
  line(s => view.run.conf[s], "var(--done)"); line(s => view.run.open[s], "var(--bad)", true);
  const now = document.createElementNS(ns, "line"); now.setAttribute("y1", 0); now.setAttribute("y2", 100); now.style.stroke = "var(--new)"; now.setAttribute("stroke-width", "2"); now.setAttribute("vector-effect", "non-scaling-stroke"); svg.append(now);
  const root = el("div"), key = el("div", "say", "solid: mean confidence of open tokens; dashed: share still masked");
  root.append(svg, key);
  return { root, show(s) { now.setAttribute("x1", x(Math.max(s, 0))); now.setAttribute("x2", x(Math.max(s, 0))); } };
}

// Builds everything for the model's present data; gives back what must happen when the step or the data changes.
function mount(model, host) {
  host.replaceChildren();
  const page = model.page === true, root = el("div", "dg" + (page ? " page" : ""));
  root.dataset.lmSuppressShortcuts = "true";          // or a key typed here would run a notebook command
  const style = el("style"); style.textContent = css; host.append(style, root);
  const data = model.get("data");
  if (!data || !data.runs) { root.append(el("div", "say", "nothing to show yet")); return { follow() {}, stop() {} }; }
  const detail = el("div", "tell", "Hover or focus a token."); detail.setAttribute("aria-live", "polite");
  const tell = t => { detail.textContent = t; };
  const lit = new Set(), views = data.runs.map(r => decodeView(data, r, tell, lit));
  const alone = views.length === 1;
  // one clock for all runs
  const clocks = alone ? { step: null } : { forwards: "forwards", milliseconds: "ms" };
  let clock = alone ? "step" : "forwards", ticks = [], drafts = true, timer = null;
  const bar = el("div", "bar"), play = el("button", "", "▶"), back = el("button", "", "|◀"), prev = el("button", "", "◀"), next = el("button", "", "▷"), range = el("input"), where = el("span", "say"), speed = el("select"), unit = el("select"), show = el("label"), box = el("input");
  [[play, "play or pause"], [back, "to the start"], [prev, "one step back"], [next, "one step on"], [range, "step"], [speed, "speed"], [unit, "clock"]].forEach(([n, t]) => { n.setAttribute("aria-label", t); n.title = t; });
  range.type = "range"; range.min = 0; box.type = "checkbox"; box.checked = true; show.append(box, document.createTextNode(" drafts"));
  [["slow", 700], ["normal", 300], ["fast", 90]].forEach(([t, v]) => { const o = el("option", "", t); o.value = v; speed.append(o); }); speed.value = 300;
  Object.keys(clocks).forEach(c => { const o = el("option", "", c); o.value = c; unit.append(o); });
  bar.append(back, prev, play, next, range, where, speed, ...(alone ? [] : [unit]), show);
  const cols = el("div", alone ? "cols" : "cols even");
  root.append(bar, cols);
  const side = alone ? ranking(data, views[0], k => { lit.clear(); const d = views[0].draft(); if (k != null && d && d.places[k]) d.places[k].forEach(p => lit.add(p)); draw(); }) : null;
  const lines = alone ? curve(views[0]) : null;
  views.forEach(v => cols.append(v.root));
  if (side) { const right = el("div"); right.append(side.root, lines.root); cols.append(right); }
  if (data.note) root.append(el("div", "say", data.note));
  root.append(detail);
  const setTicks = () => {
    ticks = alone ? views[0].run.forwards.map((_, i) => i) : [...new Set(views.flatMap(v => clocks[clock] === "ms" ? v.run.ms : v.run.forwards))].sort((a, b) => a - b);
    range.max = ticks.length - 1;
  };
  const stepOf = (v, t) => { if (alone) return t; const xs = clocks[clock] === "ms" ? v.run.ms : v.run.forwards; let s = -1; while (s + 1 < xs.length && xs[s + 1] <= t) s++; return s; };
  let i = Math.min(Math.max(model.get("step") || 0, 0), 1e9);
  const draw = () => {
    i = Math.min(Math.max(i, 0), ticks.length - 1);
    const t0 = performance.now();
    views.forEach(v => v.show(stepOf(v, ticks[i]), drafts));
    if (side) { side.show(); lines.show(ticks[i]); }
    range.value = i;
    where.textContent = alone ? `step ${i + 1} of ${ticks.length}` : clock === "milliseconds" ? `${ticks[i]} ms` : `forward ${ticks[i]}`;
    range.setAttribute("aria-valuetext", where.textContent);
    root.dataset.step = i; root.dataset.drawn = (performance.now() - t0).toFixed(2);
  };
  const go = (k, tellModel = true) => { i = k; draw(); if (tellModel && model.get("step") !== i) { model.set("step", i); model.save_changes(); } };
  const stop = () => { clearInterval(timer); timer = null; play.textContent = "▶"; };
  const start = () => { if (i >= ticks.length - 1) i = -1; play.textContent = "❚❚"; timer = setInterval(() => { if (i >= ticks.length - 1) stop(); else go(i + 1); }, +speed.value); };
  play.onclick = () => timer ? stop() : start();
  back.onclick = () => go(0); prev.onclick = () => go(i - 1); next.onclick = () => go(i + 1);
  range.oninput = () => go(+range.value); speed.onchange = () => { if (timer) { stop(); start(); } };
  unit.onchange = () => { clock = unit.value; setTicks(); go(0); }; box.onchange = () => { drafts = box.checked; draw(); };
  setTicks(); draw();
  return { stop, follow() { if (model.get("step") !== i) go(model.get("step"), false); } };
}

function render({ model, el: host }) {
  let now = mount(model, host);
  const follow = () => now.follow(), again = () => { now.stop(); now = mount(model, host); };
  model.on("change:step", follow); model.on("change:data", again);
  return () => { now.stop(); model.off("change:step", follow); model.off("change:data", again); };
}
export default { render };
