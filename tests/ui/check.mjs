// Looks at the dashboard in a real Chromium: in light and dark, on a desk and on a phone.
//
//     npm install --prefix "$DIR" playwright-core           # outside of the source tree
//     WEFT_UI_MODULES="$DIR/node_modules" node tests/ui/check.mjs http://127.0.0.1:8002/ui SCREENSHOTS
//
// Against tests/ui/mock.py everything is checked. Against a server, what only the mock can do is skipped or done in the
// browser instead. Exits with 1 when a check fails.

import { createRequire } from "node:module";
import { mkdirSync } from "node:fs";
import { join, resolve } from "node:path";

const [url, folder] = process.argv.slice(2);
if (!url || !folder) {
  console.error("usage: node check.mjs URL SCREENSHOTS");
  process.exit(2);
}
// createRequire looks into NODE_PATH as well.
const modules = process.env.WEFT_UI_MODULES;
const { chromium } = createRequire(modules ? join(resolve(modules), "x.js") : import.meta.url)("playwright-core");
mkdirSync(folder, { recursive: true });

let passed = 0, failed = 0;
async function check(name, test) {
  try {
    await test();
    passed++;
    console.log(`ok    ${name}`);
  } catch (error) {
    failed++;
    console.log(`FAIL  ${name}: ${error.message.split("\n")[0]}`);
  }
}
function must(fact, otherwise) { if (!fact) throw new Error(otherwise); }
async function until(what, test, limit = 15000) {
  const end = Date.now() + limit;
  while (Date.now() < end) {
    if (await test()) return;
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
  throw new Error(`${what}: not within ${limit / 1000} s`);
}

const origin = new URL(url).origin;
const tell = async (path) => (await fetch(`${origin}/mock/${path}`, { method: "POST" }).catch(() => ({ ok: false }))).ok;
const mock = await tell("up");

const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM || "/usr/bin/chromium",
  args: ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync"],
});

/** A page, and what it complained about. */
async function open(options, address = url) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 900 }, ...options });
  const page = await context.newPage();
  const complaints = [];
  page.on("console", (message) => { if (["error", "warning"].includes(message.type())) complaints.push(message.text()); });
  page.on("pageerror", (error) => complaints.push(`thrown: ${error.message}`));
  page.on("dialog", (dialog) => { complaints.push(`dialog: ${dialog.message()}`); dialog.dismiss(); });
  page.on("request", (request) => { if (!request.url().startsWith(origin) && !request.url().startsWith("data:")) complaints.push(`asked ${request.url()}`); });
  await page.goto(address);
  await until("first data", () => page.evaluate(() => document.querySelector("#live").textContent === "live"));
  return { page, context, complaints };
}
const shot = (page, name, more) => page.screenshot({ path: join(folder, `${name}.png`), ...more });
const overflow = (page) => page.evaluate(() => {
  const root = document.documentElement;
  const outside = [...document.querySelectorAll("body *")].filter((one) => {
    const box = one.getBoundingClientRect();
    return box.width > 0 && !one.closest("svg, .skip, .unseen") && (box.right > innerWidth + 1 || box.left < -1);
  });
  return { wide: root.scrollWidth - innerWidth, outside: outside.slice(0, 3).map((one) => `${one.tagName}.${one.className}`) };
});
const noOverflow = async (page) => {
  const { wide, outside } = await overflow(page);
  must(wide <= 0, `the page is ${wide} px too wide`);
  must(outside.length === 0, `outside of the window: ${outside}`);
};
const quiet = (complaints) => must(complaints.length === 0, complaints.join(" | "));
const figures = (page) => page.evaluate(() => [...document.querySelectorAll(".total .big")].map((one) => one.textContent).join() + document.querySelector("#about").textContent);
const firstModel = ".models .name button";

for (const colorScheme of ["light", "dark"]) {
  for (const [device, viewport] of [["desk", { width: 1280, height: 900 }], ["phone", { width: 360, height: 780 }]]) {
    const { page, context, complaints } = await open({ colorScheme, viewport, hasTouch: device === "phone" });
    const name = `${device}-${colorScheme}`;
    await check(`${name}: has the colours asked for`, async () => {
      const [light] = (await page.evaluate(() => getComputedStyle(document.body).backgroundColor)).match(/\d+/g);
      must((Number(light) > 128) === (colorScheme === "light"), `background ${light}`);
    });
    await check(`${name}: nothing is wider than the window`, () => noOverflow(page));
    await shot(page, name);
    await shot(page, `${name}-whole`, { fullPage: true });
    await check(`${name}: numbers change by themselves`, async () => {
      const before = await figures(page);
      await until("other numbers", async () => (await figures(page)) !== before, 6000);
    });
    if (await page.locator(firstModel).count()) {
      await check(`${name}: a model opens and everything still fits`, async () => {
        await page.locator(firstModel).nth(Math.min(2, (await page.locator(firstModel).count()) - 1)).click();
        await until("charts", () => page.evaluate(() => document.querySelectorAll("#detail .plot svg > *").length > 10));
        await noOverflow(page);
      });
      await page.locator("#detail").scrollIntoViewIfNeeded().catch(() => {});
      await page.evaluate(() => document.querySelector(".models .row.open")?.scrollIntoView());
      await shot(page, `${name}-detail`);
    }
    await check(`${name}: no complaints in the console`, async () => quiet(complaints));
    await context.close();
  }
}

{
  const { page, context, complaints } = await open({});
  await check("keyboard: a model opens with Enter and closes with Escape", async () => {
    await page.keyboard.press("Tab");
    for (let step = 0; step < 60; step++) {
      if (await page.evaluate(() => document.activeElement.matches(".models .name button"))) break;
      await page.keyboard.press("Tab");
    }
    must(await page.evaluate(() => document.activeElement.matches(".models .name button")), "Tab does not reach a model");
    await page.keyboard.press("Enter");
    await until("detail", () => page.locator("#detail").isVisible());
    must(await page.evaluate(() => document.activeElement.getAttribute("aria-expanded")) === "true", "aria-expanded is not true");
    await page.keyboard.press("Tab");
    must(await page.evaluate(() => document.activeElement.matches("#detail .plot")), "Tab does not go on into the detail");
    await page.keyboard.press("ArrowLeft");
    await page.keyboard.press("ArrowLeft");
    must(/^at \d\d:\d\d:\d\d: good /.test(await page.evaluate(() => document.activeElement.getAttribute("aria-valuetext"))), "arrow keys say nothing");
    must((await page.locator("#detail .cross").count()) === 4, "no crosshair in all four charts");
    await shot(page, "keyboard-crosshair");
    await page.keyboard.press("Escape");
    await page.keyboard.press("Escape");
    must((await page.locator("#detail").count()) === 0, "Escape does not close");
    must(await page.evaluate(() => document.activeElement.matches(".models .name button")), "the focus is lost");
  });
  await check("pointing at a chart shows the values there", async () => {
    await page.locator(firstModel).first().click();
    const plot = page.locator("#detail .plot").first();
    await plot.scrollIntoViewIfNeeded();
    const box = await plot.boundingBox();
    await page.mouse.move(box.x + box.width * 0.5, box.y + box.height * 0.5);
    await until("crosshair", async () => (await page.locator("#detail .cross").count()) === 4);
    must(/^at \d\d:/.test(await page.locator("#detail .top .small").first().textContent()), "no time at the crosshair");
    await page.mouse.move(2, 2);
    await until("no crosshair", async () => (await page.locator("#detail .cross").count()) === 0);
  });
  await check("the address remembers the open model", async () => {
    await page.reload();
    await until("detail", () => page.locator("#detail").isVisible());
    await page.locator("#detail button", { hasText: "Close" }).click();
    must(new URL(page.url()).hash === "", `address ${page.url()}`);
  });
  await check("the time range changes what is drawn", async () => {
    const path = () => page.locator(".total path.curve").first().getAttribute("d");
    const before = await path();
    await page.locator("#range input").first().focus();
    await page.keyboard.press("ArrowRight");
    await until("other line", async () => (await path()) !== before, 3000);
  });
  await check("the theme is remembered", async () => {
    const is = () => page.evaluate(() => document.documentElement.dataset.theme);
    while ((await is()) !== "dark") await page.locator("#theme").click();
    await page.reload();
    must((await is()) === "dark", "dark is forgotten");
    while ((await page.locator("#theme").textContent()) !== "Auto") await page.locator("#theme").click();
  });
  await check("search and sort", async () => {
    const names = () => page.locator(".models .name button").allTextContents();
    await until("models", async () => (await names()).length > 0);
    const all = await names();
    await page.keyboard.press("/");
    await page.keyboard.type("no-such-model-at-all");
    must((await page.locator("#models .empty").textContent()).includes("No model matches"), "nothing said about no match");
    await shot(page, "no-match");
    await page.keyboard.press("Escape");
    must((await names()).length === all.length, "Escape does not clear the search");
    await page.locator(".models thead button", { hasText: "Model" }).click();
    const turned = await names();
    must(all.length < 2 || turned[0] !== all[0] || turned.join() !== all.join(), "the order is the same");
    must((await page.locator(".models th[aria-sort=descending]").count()) === 1, "aria-sort is missing");
  });
  await check("behaves through all of that", async () => quiet(complaints));
  await context.close();
}

for (const [how, stop, start] of [
  ["refused", (page) => (mock ? tell("down") : page.route("**/ui/data*", (route) => route.abort())), (page) => (mock ? tell("up") : page.unroute("**/ui/data*"))],
  ...(mock ? [["left open", () => tell("hang"), () => tell("up")]] : []),
  ["not JSON", (page) => page.route("**/ui/data*", (route) => route.fulfill({ body: "<html>" })), (page) => page.unroute("**/ui/data*")],
  ["an error", (page) => page.route("**/ui/data*", (route) => route.fulfill({ status: 503, body: "{}" })), (page) => page.unroute("**/ui/data*")],
]) {
  const { page, context, complaints } = await open({});
  await check(`answers ${how}: says so, and goes on without a reload`, async () => {
    await page.evaluate(() => { window.mark = true; });
    await stop(page);
    await until("banner", () => page.locator("#banner").isVisible(), 12000);
    must((await page.locator("#banner").textContent()).includes("Connection lost, retrying"), "the banner says something else");
    if (how === "refused") await shot(page, "lost");
    const before = await figures(page);
    await start(page);
    await until("recovery", async () => !(await page.locator("#banner").isVisible()), 20000);
    await until("new numbers", async () => (await figures(page)) !== before);
    must(await page.evaluate(() => window.mark), "the page was loaded again");
  });
  await check(`answers ${how}: no exceptions`, async () => quiet(complaints.filter((one) => !one.startsWith("Failed to load resource"))));
  await context.close();
}

{
  const { page, context, complaints } = await open({ viewport: { width: 1280, height: 2400 } });
  const sent = await (await fetch(`${origin}/ui/data?since=0`)).json();
  const hostile = sent.models.filter((model) => /[<>"]/.test(model.name));
  if (mock || hostile.length) {
    await check("names that look like markup are shown as they are", async () => {
      const names = await page.locator(".models .name button").allTextContents();
      for (const { name } of hostile) must(names.includes(name), `${name} is not shown`);
      for (const button of await page.locator(firstModel).all()) { await button.click(); await page.waitForTimeout(60); }
      must((await page.evaluate(() => document.querySelectorAll("img, main script, b[onmouseover]").length)) === 0, "a name became an element");
      quiet(complaints);
    });
  }
  await check("the page's own policy refuses markup", async () => {
    const refused = await page.evaluate(() => { try { document.createElement("div").innerHTML = "<b>x</b>"; return false; } catch { return true; } });
    must(refused, "innerHTML works");
  });
  await context.close();
}

if (mock) {
  const { page, context, complaints } = await open({});
  await check("a server that starts anew is followed", async () => {
    await tell("restart");
    await until("short uptime", async () => /up 3\d s/.test(await page.locator("#about").textContent()), 8000);
    must((await page.locator("#banner").isHidden()), "a banner is shown");
  });
  await check("no models: says what to do", async () => {
    await tell("models?n=0");
    await until("empty", async () => (await page.locator("#models .empty").textContent()).includes("weft deploy"), 8000);
    must(await page.locator("#models table").isHidden(), "an empty table is shown");
    await noOverflow(page);
    await shot(page, "empty");
  });
  await check("200 models and 400 workers: quick enough, capped, and still fit", async () => {
    await tell("models?n=200");
    await until("many", async () => (await page.locator("#models .more").textContent()).includes("of 200 models"), 20000);
    must((await page.locator(".models tr.row").count()) <= 25, "more rows than the cap");
    await page.locator("#models .more button", { hasText: "Show all" }).click();
    must((await page.locator(".models tr.row").count()) === 200, "not all rows are shown");
    await page.locator("#workers .more button", { hasText: "Show all" }).click();
    // The longest that the page keeps the browser from anything else, over a few updates. What the page does it does
    // every time; a machine that is taken away for a second does not come three times.
    const pause = () => page.evaluate(() => new Promise((resolve) => {
      let last = performance.now(), most = 0;
      const end = last + 4000;
      const step = () => { const now = performance.now(); most = Math.max(most, now - last); last = now; if (now < end) setTimeout(step, 0); else resolve(most); };
      step();
    }));
    let longest = Infinity;
    for (let turn = 0; turn < 3 && longest >= 1000; turn++) longest = Math.min(longest, await pause());
    console.log(`      longest pause ${longest.toFixed(0)} ms with every row shown`);
    must(longest < 1000, `the page stands still for ${longest.toFixed(0)} ms`);
    await page.keyboard.press("/");
    await page.keyboard.type("model-123");
    await until("one", async () => (await page.locator(".models tr.row").count()) === 1);
    await noOverflow(page);
    await shot(page, "many");
  });
  await check("many: no complaints", async () => quiet(complaints));
  await context.close();
  await tell("models?n=12");
}

{
  const { page, context } = await open({ reducedMotion: "reduce" });
  for (const width of [320, 700, 820, 1100, 1110, 1920]) {
    await check(`${width} px: nothing is wider than the window, or than its cell`, async () => {
      await page.setViewportSize({ width, height: 900 });
      await page.waitForTimeout(300);
      await noOverflow(page);
      const over = await page.evaluate(() => [...document.querySelectorAll("tr.row > td")].filter((cell) => cell.scrollWidth > cell.clientWidth + 2).map((cell) => `${cell.className}: ${cell.textContent}`).slice(0, 3));
      must(over.length === 0, `too wide for its cell: ${over}`);
      await shot(page, `width-${width}`);
    });
  }
  await check("reduced motion: nothing is animated", async () => {
    must((await page.evaluate(() => document.getAnimations().length)) === 0, "an animation runs");
  });
  await context.close();
}

await browser.close();
console.log(`${passed} passed, ${failed} failed`);
process.exit(failed ? 1 : 0);
