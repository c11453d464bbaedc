// What a reader does to either page, and where what went wrong is kept.
const check = function (ok, what) { if (!ok) faults.push(what); };
const $ = function (selector) { return document.querySelector(selector); };
const all = function (selector) { return Array.from(document.querySelectorAll(selector)); };
const box = function () { return $('#timeline svg').getBoundingClientRect(); };
const pointer = function (kind, share) {
  $('#timeline svg').dispatchEvent(new PointerEvent(kind, { bubbles: true, clientX: box().left + box().width * share, clientY: box().top + 50, button: 0, pointerType: 'mouse' }));
};
const key = function (name) { $('#timeline').dispatchEvent(new KeyboardEvent('keydown', { key: name, bubbles: true, cancelable: true })); };
const isWhole = function () { return $('#whole').disabled; };
