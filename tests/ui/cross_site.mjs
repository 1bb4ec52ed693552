// A page of another site, in a real Chromium, tries what such pages try: to deploy a model by every kind of request that
// a page can send, to read what the server shows, to show the dashboard in a frame, and all of it again from a name that
// points at this machine (DNS rebinding).
//
//     WEFT_UI_MODULES="$DIR/node_modules" node tests/ui/cross_site.mjs http://127.0.0.1:8002 http://127.0.0.1:8000 LOG
//
// LOG is what the server said. Exits with 1 when anything got through, or was refused without a line in the log.

import { createRequire } from "node:module";
import { createServer } from "node:http";
import { readFileSync } from "node:fs";
import { join, resolve } from "node:path";

const [metrics, http, log] = process.argv.slice(2);
if (!log) {
  console.error("usage: node cross_site.mjs METRICS HTTP LOG");
  process.exit(2);
}
const modules = process.env.WEFT_UI_MODULES;
const { chromium } = createRequire(modules ? join(resolve(modules), "x.js") : import.meta.url)("playwright-core");

let failed = 0;
function check(name, fact, otherwise = "") {
  if (!fact) failed++;
  console.log(`${fact ? "ok   " : "FAIL "} ${name}${fact ? "" : `: ${otherwise}`}`);
}

// The other site: the same machine, and another origin.
const site = createServer((_, answer) => {
  answer.setHeader("content-type", "text/html");
  answer.end("<!doctype html><title>evil</title><form id=form method=post target=hidden></form><iframe name=hidden></iframe>");
});
await new Promise((done) => site.listen(0, "127.0.0.1", done));
const evil = `http://127.0.0.1:${site.address().port}/`;

const port = new URL(metrics).port;
const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM || "/usr/bin/chromium",
  args: ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--host-resolver-rules=MAP rebound.example 127.0.0.1"],
});
const page = await browser.newPage();
const spec = { name: "intruder", kind: "virtual", latency: { alpha: "1ms", beta: "1ms" } };

/** Tries a request within the page: what came of it, as far as the page can see. */
const attempt = (url, options) => page.evaluate(async ([url, options]) => {
  try {
    const answer = await fetch(url, options);
    return { type: answer.type, status: answer.status, text: await answer.text() };
  } catch (error) {
    return { error: String(error) };
  }
}, [url, options]);

await page.goto(evil);
const body = JSON.stringify(spec);
for (const [name, options] of Object.entries({
  "plain text": { method: "POST", mode: "no-cors", headers: { "content-type": "text/plain" }, body },
  "plain text, to be read": { method: "POST", headers: { "content-type": "text/plain" }, body },
  "JSON": { method: "POST", headers: { "content-type": "application/json" }, body },
  "JSON as a blob": { method: "POST", mode: "no-cors", body },
  "a form": { method: "POST", mode: "no-cors", headers: { "content-type": "application/x-www-form-urlencoded" }, body },
})) {
  const came = await attempt(`${metrics}/admin/models`, options);
  check(`deploy with ${name}`, came.error || came.type === "opaque" || came.status >= 400, JSON.stringify(came));
}
await page.evaluate(([url, body]) => {
  const form = document.getElementById("form");
  form.action = url;
  form.enctype = "text/plain";
  const field = document.createElement("input");
  field.name = `${body.slice(0, -1)}, "x": "`;
  field.value = `"}`;
  form.append(field);
  form.submit();
}, [`${metrics}/admin/models`, body]);
for (const path of ["/admin/models", "/metrics", "/ui/data?since=0"]) {
  const came = await attempt(`${metrics}${path}`, {});
  check(`read ${path}`, came.error, JSON.stringify(came).slice(0, 200));
}
for (const path of ["/v2/repository/models/steady/unload", "/v2/systemsharedmemory/region/r/register", "/v2/logging"]) {
  await attempt(`${http}${path}`, { method: "POST", mode: "no-cors", body: "{}" });
}
const framed = await page.evaluate((url) => new Promise((done) => {
  const frame = document.createElement("iframe");
  frame.onload = () => { try { done(frame.contentWindow.length >= 0 && frame.contentDocument ? "own" : "apart"); } catch { done("apart"); } };
  frame.src = url;
  document.body.append(frame);
}), `${metrics}/ui`);
const frame = page.frames().find((one) => one.url().startsWith(metrics) || one.url().startsWith("chrome-error"));
check("show the dashboard in a frame", !frame || frame.url().startsWith("chrome-error"), `${framed} ${frame?.url()}`);

// The name of the other site now leads to this machine: to the browser it is the same origin.
const rebound = await page.goto(`http://rebound.example:${port}/ui`);
check("the dashboard under another name", rebound.status() === 403, String(rebound.status()));
for (const [path, options] of [
  ["/admin/models", {}],
  ["/admin/models", { method: "POST", headers: { "content-type": "application/json" }, body }],
  ["/ui/data?since=0", {}],
]) {
  const came = await attempt(`http://rebound.example:${port}${path}`, options);
  check(`${options.method || "GET"} ${path} under another name`, came.status === 403 || came.error, JSON.stringify(came).slice(0, 200));
}

// The server's own page goes on working, and nothing was deployed.
await page.goto(`${metrics}/ui`);
const data = await attempt(`${metrics}/ui/data?since=0`, {});
check("the dashboard itself", data.status === 200, JSON.stringify(data).slice(0, 200));
const models = JSON.parse(data.text || "{}").models || [];
check("nothing was deployed", !models.some((model) => model.name === "intruder"));
check("nothing was unloaded", models.some((model) => model.name === "steady" && model.state === "ready"), JSON.stringify(models).slice(0, 200));
const said = readFileSync(log, "utf8");
const origin = evil.slice(0, -1);
check("refusals are in the log", said.includes(`comes from a page of \`${origin}\``) && said.includes("rebound.example"));

await browser.close();
site.close();
console.log(failed ? `${failed} failed` : "nothing got through");
process.exit(failed ? 1 : 0);
