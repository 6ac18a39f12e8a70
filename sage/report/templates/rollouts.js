"use strict";
// The hash holds the whole state: a control writes it, a change of it draws. What is drawn comes from scripts, loaded when asked for.
const suite = JSON.parse(document.getElementById("suite").textContent);
const controls = document.getElementById("controls").elements, detail = document.getElementById("detail");
const VERDICTS = ["correct", "wrong", "unparseable", "timeout", "error"];
const SHADES = { entropy: "entropy H_t", guide: "guide q_t", gap: "log π − log π_ref", none: "none" };
const SIGNALS = [["log π", "policy"], ["log π_ref", "anchor"], ["H_t", "entropy"], ["q_t", "guide"]];
const loaded = new Map(), asked = new Map();
let drawing = 0;

globalThis.rollouts = (path, content) => loaded.set(path, content);

function load(path) {
  if (!asked.has(path)) {
    asked.set(path, new Promise(resolve => {
      const script = document.createElement("script");
      script.src = `rollouts/${path}.js`;
      script.onload = () => resolve(loaded.get(path) ?? null);
      script.onerror = () => resolve(null);
      document.head.append(script);
    }));
  }
  return asked.get(path);
}

function element(tag, properties = {}, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);
  return made;
}

function fill(select, options, value) {
  select.replaceChildren(...options.map(([name, text]) => element("option", { value: name, textContent: text })));
  select.value = value;
}

// What the hash leaves open, or says wrongly, is the first of its kind.
function state() {
  const asked = Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
  const methods = Object.keys(suite.methods), one = (value, values, first = values[0]) => values.includes(value) ? value : first;
  return {
    benchmark: one(asked.benchmark, suite.benchmarks),
    problem: asked.problem ?? "",
    method: one(asked.method, methods, methods.at(-1)),
    beside: one(asked.beside, ["", ...methods]),
    seed: one(asked.seed, suite.seeds.map(String)),
    verdict: one(asked.verdict, ["", ...VERDICTS]),
    shade: one(asked.shade, Object.keys(SHADES)),
    completion: asked.completion ?? "",
  };
}

function go(changes) {
  const next = { ...state(), completion: "", ...changes };
  location.hash = new URLSearchParams(Object.entries(next).filter(([, value]) => value !== ""));
}

async function draw() {
  const turn = ++drawing, now = state(), columns = [now.method, now.beside].filter(Boolean);
  const indices = await Promise.all(columns.map(method => load(`${method}/seed${now.seed}/index`)));
  const problems = indices.find(Boolean)?.[now.benchmark]?.problems ?? [];
  const number = Math.max(0, problems.findIndex(problem => problem.id === now.problem));
  const parts = await Promise.all(columns.map((method, i) =>
    indices[i] && load(`${method}/seed${now.seed}/parts/${now.benchmark}/${number}`)));
  if (turn !== drawing) return;
  setControls(now, problems, number);
  legend(now.shade, parts);
  detail.hidden = true;
  document.getElementById("columns").replaceChildren(...columns.map((method, i) => column(now, method, indices[i], parts[i])));
  splitFirst();
  const linked = document.querySelector("article.linked");
  linked?.scrollIntoView({ block: "center" });
  say(now, problems, problems[number], linked);
  document.body.dataset.drawn = location.hash;
}

// A link to what is not here says so, instead of showing something else in silence.
function say(now, problems, shown, linked) {
  const lost = problems.length && now.problem && shown.id !== now.problem ? `problem ${now.problem}` : now.completion && !linked ? `completion ${now.completion}` : "";
  document.getElementById("lost").textContent = lost && `The link asks for ${lost}, which is not among those that this page holds.`;
}

function setControls(now, problems, number) {
  const methods = Object.entries(suite.methods).map(([name, method]) => [name, method.label]);
  fill(controls.benchmark, suite.benchmarks.map(name => [name, name]), now.benchmark);
  fill(controls.problem, problems.map(p => [p.id, `${p.id} (${p.verdicts[suite.primary].correct ?? 0}/${p.n})`]), problems[number]?.id ?? "");
  fill(controls.method, methods, now.method);
  fill(controls.beside, [["", "nothing"], ...methods], now.beside);
  fill(controls.seed, suite.seeds.map(seed => [String(seed), String(seed)]), now.seed);
  fill(controls.verdict, [["", "all"], ...VERDICTS.map(name => [name, name])], now.verdict);
  fill(controls.shade, Object.entries(SHADES), now.shade);
}

function column(now, method, index, part) {
  const { label, colour } = suite.methods[method];
  const swatch = element("span", { className: "swatch" }), made = element("section", {}, element("h2", {}, swatch, label));
  swatch.style.background = colour;
  if (!part) return missing(made, method, now.seed);
  if (index[now.benchmark].samples !== suite.samples[`${method}/${now.seed}/${now.benchmark}`]) {
    made.append(element("p", { className: "empty", textContent: "These completions are not those that the report's metric files grade: one of the two is older." }));
  }
  for (const [grade, counts] of Object.entries(part.verdicts)) {
    const text = VERDICTS.filter(name => counts[name]).map(name => `${counts[name]} ${name}`).join(", ");
    made.append(element("p", { className: "soft", textContent: `${grade}, of ${part.n}: ${text}` }));
  }
  made.append(element("p", { className: "task", textContent: `${part.problem}\n→ ${part.answer}` }));
  const shown = part.completions.filter(c => !now.verdict || c.verdicts[suite.primary] === now.verdict);
  made.append(...shown.map(completion => article(now, method, completion)));
  if (!shown.length) made.append(element("p", { className: "soft none", textContent: `No completion here is ${now.verdict}.` }));
  return made;
}

function missing(made, method, seed) {
  const command = `python -m sage.annotate --config ${suite.config} --method ${method} --seed ${seed}`;
  made.append(element("div", { className: "empty" },
    element("p", { textContent: "These completions are not on this disk: they are made from the kept samples and the weights, and are not in git." }),
    element("p", {}, "All of them: ", element("code", { textContent: suite.command }), "; these alone: ", element("code", { textContent: command }))));
  return made;
}

function article(now, method, completion) {
  const id = `${method}-${completion.sample}`, { completion: _, ...rest } = now;
  const hash = new URLSearchParams(Object.entries({ ...rest, problem: controls.problem.value, completion: id }).filter(([, value]) => value !== ""));
  const verdicts = Object.entries(completion.verdicts).map(([grade, verdict]) =>
    element("span", { className: `verdict ${verdict}`, textContent: `${verdict} (${grade})` }));
  const tokens = element("div", { className: "tokens", tabIndex: 0, role: "group", ariaLabel: `completion ${completion.sample}, tokens` });
  Object.assign(tokens, { completion, shade: now.shade, textContent: completion.tokens.join("") });
  return element("article", { id, className: now.completion === id ? "linked" : "" },
    element("header", {}, element("a", { className: "link", href: `#${hash}`, textContent: `#${completion.sample}` }), ...verdicts,
      element("span", { textContent: `${completion.tokens.length} tokens, finish: ${completion.finish}` })), tokens);
}

// Beyond the first few thousand tokens a completion is plain text until it comes near the window: a hundred thousand elements
// at once take seconds.
const near = new IntersectionObserver(entries => entries.filter(entry => entry.isIntersecting).forEach(({ target }) => {
  near.unobserve(target);
  split(target.querySelector(".tokens"));
}), { rootMargin: "300px" });

function splitFirst() {
  let left = 4000;
  for (const made of document.querySelectorAll("article")) {
    const tokens = made.querySelector(".tokens");
    left -= tokens.completion.tokens.length;
    if (left >= 0) split(tokens); else near.observe(made);
  }
}

function split(tokens) {
  const { completion, shade } = tokens;
  if (!tokens.firstElementChild) tokens.replaceChildren(...completion.tokens.map((token, t) => tokenSpan(shade, token, completion, t)));
}

function tokenSpan(shade, token, completion, t) {
  return element("span", { textContent: token, className: `${shadeClass(shade, value(shade, completion, t))}${/^<.*>$/.test(token) ? " special" : ""}` });
}

function value(shade, completion, t) {
  if (shade === "gap") return completion.policy[t] - completion.anchor[t];
  return completion[shade]?.[t] ?? (shade === "guide" ? 1 : 0);
}

// Entropy from 0 up in one hue; guide and gap on both sides of what changes nothing: eight steps of colour each.
function shadeClass(shade, x) {
  const [neutral, span] = suite.scales[shade] ?? [0, 1], step = Math.round(8 * Math.min(1, Math.abs(x - neutral) / span));
  return step ? `${x > neutral ? "more" : "less"}${step}` : "";
}

function legend(shade, parts) {
  const [neutral, span] = suite.scales[shade] ?? [0, 0], low = shade === "entropy" ? 0 : neutral - span;
  const bar = element("span", { className: `bar ${shade}` });
  const noGuide = shade === "guide" && !parts.some(part => part?.completions[0]?.guide) ? " No method here has a guide." : "";
  document.getElementById("legend").replaceChildren(...(shade === "none" ? [] :
    [`${SHADES[shade]}: ${low.toFixed(1)}`, bar, `${(neutral + span).toFixed(1)}${shade === "guide" ? "" : " nats or more"}.${noGuide}`]));
}

function show(span) {
  document.querySelector(".tokens .at")?.classList.remove("at");
  const { completion } = span.parentElement, t = [...span.parentElement.children].indexOf(span);
  const lines = SIGNALS.map(([name, key]) => `${name.padEnd(10)}${completion[key] ? completion[key][t].toFixed(4).padStart(9) : "        –"}`);
  detail.textContent = [`${JSON.stringify(completion.tokens[t])}  (token ${t + 1})`, ...lines].join("\n");
  detail.hidden = false;
  span.classList.add("at");
  const box = span.getBoundingClientRect(), below = box.bottom + 8 + detail.offsetHeight < innerHeight;
  detail.style.left = `${Math.max(4, Math.min(box.left, innerWidth - detail.offsetWidth - 8))}px`;
  detail.style.top = `${below ? box.bottom + 8 : box.top - 8 - detail.offsetHeight}px`;
}

function hide() {
  document.querySelector(".tokens .at")?.classList.remove("at");
  detail.hidden = true;
}

function step(by) {
  const options = [...controls.problem.options], next = options[controls.problem.selectedIndex + by];
  if (next) go({ problem: next.value });
}

document.getElementById("controls").addEventListener("change", event => go({ [event.target.name]: event.target.value }));
document.querySelectorAll("button.step").forEach(button => button.addEventListener("click", () => step(Number(button.dataset.step))));
document.addEventListener("pointerover", event => event.target.matches?.(".tokens > span") ? show(event.target) : hide());
document.addEventListener("focusout", hide);
document.addEventListener("keydown", event => {
  const tokens = document.activeElement.closest?.(".tokens");
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches?.("select")) return;
  if (event.key === "n" || event.key === "p") step(event.key === "n" ? 1 : -1);
  else if (event.key === "Escape") hide();
  else if (tokens && (event.key === "ArrowRight" || event.key === "ArrowLeft")) {
    split(tokens);
    const spans = [...tokens.children], at = spans.findIndex(span => span.classList.contains("at"));
    show(spans[Math.max(0, Math.min(spans.length - 1, at + (event.key === "ArrowRight" ? 1 : -1)))]);
    event.preventDefault();
  }
});
addEventListener("hashchange", draw);
draw();
