// Keeps the parts of a screen as the server says they are, and times as ages. Without this script, the page shows the moment at which it was loaded.
"use strict";

const link = document.getElementById("link");
let source = null;
let again = 0;

// How long ago a time is, or how long until it comes.
function age(at) {
  const seconds = Math.round((Date.now() - at) / 1000);
  const n = Math.abs(seconds);
  const said = n < 120 ? `${n} s` : n < 7200 ? `${Math.floor(n / 60)} min` : n < 172800 ? `${Math.floor(n / 3600)} h` : `${Math.floor(n / 86400)} days`;
  return seconds >= 0 ? `${said} ago` : `in ${said}`;
}

function ages() {
  for (const time of document.querySelectorAll("time[datetime]")) {
    const at = Date.parse(time.dateTime);
    if (Number.isNaN(at)) continue;
    const said = age(at);
    if (time.textContent !== said) time.textContent = said;
    time.title = new Date(at).toLocaleString();
  }
}

// Makes one element like another, and leaves alone what is the same: focus, selection, and what somebody has unfolded or typed stay.
// Children with a key stay with what they are about, wherever that is now. Without a key, it is their place that counts.
function become(now, next) {
  for (const { name } of [...now.attributes]) {
    if (!next.hasAttribute(name) && !(now.tagName === "DETAILS" && name === "open")) now.removeAttribute(name);
  }
  for (const { name, value } of [...next.attributes]) {
    if (now.getAttribute(name) !== value && !(now.tagName === "DETAILS" && name === "open")) now.setAttribute(name, value);
  }
  if (now.tagName === "TIME" && now.getAttribute("datetime") === next.getAttribute("datetime")) return;
  const wanted = [...next.childNodes];
  const keyed = new Map([...now.children].filter((child) => child.dataset.key).map((child) => [child.dataset.key, child]));
  wanted.forEach((child, n) => {
    const known = now.childNodes[n];
    const key = child.dataset?.key;
    const same = key && keyed.get(key);
    if (same) {
      if (same !== known) now.insertBefore(same, known);
      become(same, child);
    } else if (!known) now.append(child);
    else if (key || known.dataset?.key) now.insertBefore(child, known);
    else if (known.nodeType !== child.nodeType || known.nodeName !== child.nodeName) known.replaceWith(child);
    else if (known.nodeType === Node.ELEMENT_NODE) become(known, child);
    else if (known.data !== child.data) known.data = child.data;
  });
  while (now.childNodes.length > wanted.length) now.lastChild.remove();
}

function show(parts) {
  if ("failure" in parts) {
    say(`not up to date: ${parts.failure}`, true);
    return;
  }
  say("live", false);
  const focused = document.activeElement;
  for (const [id, html] of Object.entries(parts)) {
    const now = document.getElementById(id);
    if (!now) continue;
    const next = now.cloneNode(false);
    next.innerHTML = html;
    become(now, next);
  }
  // Browsers take the focus from an element that moves.
  if (focused !== document.activeElement && focused?.isConnected) focused.focus({ preventScroll: true });
  ages();
}

function say(text, isLost) {
  if (link.textContent !== text) link.textContent = text;
  link.classList.toggle("lost", isLost);
}

function follow() {
  clearTimeout(again);
  // A browser has few connections to a server, so a screen that nobody sees has none.
  if (document.hidden || source) return;
  source = new EventSource(`/ui/live?of=${encodeURIComponent(document.body.dataset.live)}`);
  source.onmessage = (event) => show(JSON.parse(event.data));
  source.onerror = () => {
    say("the server does not answer", true);
    if (source.readyState !== EventSource.CLOSED) return;
    source = null;
    // A visitor whose session has ended is shown where to sign in.
    fetch("/ui/session", { redirect: "error" }).then((answer) => { if (answer.status === 401) location.reload(); }).catch(() => {});
    again = setTimeout(follow, 5000 + Math.random() * 5000);
  };
}

document.addEventListener("visibilitychange", () => {
  if (!document.hidden) return follow();
  if (source) source.close();
  source = null;
});

ages();
setInterval(ages, 1000);
if (document.body.dataset.live) follow();
