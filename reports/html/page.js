'use strict';
(function () {
  const data = JSON.parse(document.getElementById('data').textContent);
  const readout = document.getElementById('readout');
  const drawings = Array.from(document.querySelectorAll('.linked'));
  const cursors = drawings.map(function (drawing) {
    const line = document.createElement('div');
    line.className = 'cursor';
    line.hidden = true;
    drawing.appendChild(line);
    return line;
  });
  let at = data.from;

  function paragraph(text, className) {
    const p = document.createElement('p');
    p.textContent = text;
    if (className) p.className = className;
    readout.appendChild(p);
  }

  // What each row counted in the bucket under the cursor, and the events in it.
  function fill() {
    const bucket = Math.min(Math.floor((at - data.from) / data.step + 1e-9), Math.round((data.to - data.from) / data.step) - 1);
    const begin = data.from + bucket * data.step;
    readout.textContent = '';
    const head = document.createElement('strong');
    head.textContent = '+' + begin.toFixed(1) + ' s to +' + (begin + data.step).toFixed(1) + ' s';
    readout.appendChild(head);
    for (const row of data.rows) {
      const parts = [];
      let lost = false;
      for (const name of Object.keys(row.numbers)) {
        const n = row.numbers[name][bucket];
        if (n) {
          parts.push(n + ' ' + name);
          lost = lost || name === 'dropped' || name === 'delayed';
        }
      }
      if (parts.length) paragraph(row.name + ': ' + parts.join(', '), lost ? 'lost' : '');
    }
    const near = data.events.filter(function (e) { return e.at >= begin && e.at < begin + data.step; });
    for (const e of near.slice(0, 8)) paragraph(e.text);
    if (near.length > 8) paragraph('… ' + (near.length - 8) + ' more events');
  }

  function show(x, y) {
    drawings.forEach(function (drawing, i) {
      const box = drawing.querySelector('svg').getBoundingClientRect();
      const outer = drawing.getBoundingClientRect();
      const share = (at - data.from) / (data.to - data.from);
      const place = box.left + (data.left + share * data.width) / data.total * box.width;
      cursors[i].style.left = (place - outer.left - drawing.clientLeft + drawing.scrollLeft) + 'px';
      cursors[i].hidden = false;
    });
    fill();
    readout.hidden = false;
    const size = readout.getBoundingClientRect();
    readout.style.left = Math.max(4, x + 16 + size.width > innerWidth ? x - 16 - size.width : x + 16) + 'px';
    readout.style.top = Math.max(4, Math.min(y + 12, innerHeight - size.height - 8)) + 'px';
  }

  function hide() {
    readout.hidden = true;
    cursors.forEach(function (c) { c.hidden = true; });
  }

  drawings.forEach(function (drawing) {
    const svg = drawing.querySelector('svg');
    drawing.addEventListener('pointermove', function (e) {
      const box = svg.getBoundingClientRect();
      const share = ((e.clientX - box.left) / box.width * data.total - data.left) / data.width;
      if (share < 0 || share > 1) return hide();
      at = data.from + share * (data.to - data.from);
      show(e.clientX, e.clientY);
    });
    drawing.addEventListener('pointerleave', hide);
    drawing.addEventListener('blur', hide);
    drawing.addEventListener('keydown', function (e) {
      const way = { ArrowLeft: -1, ArrowRight: 1 }[e.key];
      if (e.key === 'Escape') return hide();
      if (!way) return;
      e.preventDefault();
      at = Math.min(Math.max(at + way * data.step * (e.shiftKey ? 10 : 1), data.from), data.to - data.step / 2);
      const box = svg.getBoundingClientRect();
      const share = (at - data.from) / (data.to - data.from);
      show(box.left + (data.left + share * data.width) / data.total * box.width, Math.max(box.top, 0) + 40);
    });
  });

  const copy = document.getElementById('copy');
  if (copy) {
    const command = document.getElementById('command');
    copy.hidden = false;
    copy.addEventListener('click', function () {
      const done = function () { copy.textContent = 'Copied'; };
      const select = function () {
        getSelection().selectAllChildren(command);
        copy.textContent = document.execCommand('copy') ? 'Copied' : 'Press Ctrl+C';
      };
      if (navigator.clipboard) navigator.clipboard.writeText(command.textContent).then(done, select);
      else select();
    });
  }

  addEventListener('beforeprint', function () {
    document.querySelectorAll('details').forEach(function (d) { d.open = true; });
  });
})();
