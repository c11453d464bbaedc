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
  const whole = { from: data.from, to: data.to };
  let view = whole;
  let at = data.from;

  const share = function (t) { return (t - view.from) / (view.to - view.from); };
  const unit = function (t) { return data.left + share(t) * data.width; }; // in the drawing

  function paragraph(text, className) {
    const p = document.createElement('p');
    p.textContent = text;
    if (className) p.className = className;
    readout.appendChild(p);
  }

  const signed = function (t) { return t < 600 ? (t < 0 ? '-' : '+') + Math.abs(t).toFixed(1) + ' s' : '+' + clock(t, 0.1); };

  // What each row counted in the bucket under the cursor, and the events in it.
  function fill() {
    const bucket = Math.min(Math.floor((at - data.from) / data.step + 1e-9), Math.round((data.to - data.from) / data.step) - 1);
    const begin = data.from + bucket * data.step;
    readout.textContent = '';
    const head = document.createElement('strong');
    head.textContent = signed(begin) + ' to ' + signed(begin + data.step);
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

  // A readout that a key or a button asked for stands below the drawing, so that it hides nothing of it.
  function show(x, y, below) {
    drawings.forEach(function (drawing, i) {
      const box = drawing.querySelector('svg').getBoundingClientRect();
      const outer = drawing.getBoundingClientRect();
      const place = box.left + unit(at) / data.total * box.width;
      cursors[i].style.left = (place - outer.left - drawing.clientLeft + drawing.scrollLeft) + 'px';
      cursors[i].hidden = false;
    });
    fill();
    readout.hidden = false;
    readout.classList.toggle('docked', below !== undefined);
    if (below) return below.after(readout);
    const size = readout.getBoundingClientRect();
    readout.style.left = Math.max(4, x + 16 + size.width > innerWidth ? x - 16 - size.width : x + 16) + 'px';
    readout.style.top = Math.max(4, Math.min(y + 12, innerHeight - size.height - 8)) + 'px';
  }

  function hide() {
    readout.hidden = true;
    cursors.forEach(function (c) { c.hidden = true; });
  }

  // What moves when the view changes, with the place that it has in the whole run.
  const moving = [];
  drawings.forEach(function (drawing) {
    const svg = drawing.querySelector('svg');
    const clip = document.createElementNS(svg.namespaceURI, 'clipPath');
    clip.id = 'plot-' + moving.length;
    const room = document.createElementNS(svg.namespaceURI, 'rect');
    const size = { x: data.left, y: 0, width: data.width, height: svg.viewBox.baseVal.height };
    for (const name of Object.keys(size)) room.setAttribute(name, size[name]);
    clip.appendChild(room);
    const number = function (e, name) { return parseFloat(e.getAttribute ? e.getAttribute(name) : e[name]); };
    svg.querySelectorAll('g.number').forEach(function (e) { moving.push({ e: e, kind: 'number', x: number(e.dataset, 'x') }); });
    svg.querySelectorAll('rect,path,text.phase,text.inside,text.tick,line.grid').forEach(function (e) {
      if (e.closest('defs') || (e.tagName === 'line' && e.getAttribute('x1') !== e.getAttribute('x2'))) return;
      if (e.tagName === 'path') {
        const g = document.createElementNS(svg.namespaceURI, 'g'); // the clip must not move with the path
        g.setAttribute('clip-path', 'url(#' + clip.id + ')');
        e.replaceWith(g);
        g.appendChild(e);
        moving.push({ e: e, kind: 'path' });
      } else if (e.tagName === 'rect') {
        moving.push({ e: e, kind: e.classList.contains('mark') ? 'mark' : 'rect', x: number(e, 'x'), width: number(e, 'width') });
      } else if (e.matches('.tick,.grid')) {
        moving.push({ e: e, kind: 'tick' });
      } else {
        moving.push({ e: e, kind: 'label', x: number(e, 'x'), room: Math.max(e.getComputedTextLength(), 20) });
      }
    });
    svg.appendChild(clip);
  });

  const left = data.left, right = data.left + data.width;

  function place(m, factor, shift) {
    if (factor === 1) {
      m.e.style.display = '';
      m.e.removeAttribute('transform');
      if (m.kind === 'number') return;
      if (m.x !== undefined) m.e.setAttribute('x', m.x);
      if (m.width !== undefined) m.e.setAttribute('width', m.width);
      return;
    }
    const to = function (x) { return left + (x - left) * factor - shift; };
    switch (m.kind) {
      case 'path':
        m.e.setAttribute('transform', 'translate(' + (left - left * factor - shift) + ' 0) scale(' + factor + ' 1)');
        break;
      case 'mark': {
        const x = to(m.x + m.width / 2) - m.width / 2;
        m.e.setAttribute('x', x);
        m.e.style.display = x + m.width < left || x > right ? 'none' : '';
        break;
      }
      case 'rect': {
        const x = Math.max(to(m.x), left), end = Math.min(to(m.x + m.width), right);
        m.e.setAttribute('x', x);
        m.e.setAttribute('width', Math.max(end - x, 0));
        m.e.style.display = end <= x ? 'none' : '';
        break;
      }
      case 'number': {
        const x = to(m.x);
        m.e.setAttribute('transform', 'translate(' + (x - m.x) + ' 0)');
        m.e.style.display = x < left || x > right ? 'none' : '';
        break;
      }
      case 'label': {
        const x = to(m.x);
        m.e.setAttribute('x', x);
        m.e.style.display = x < left - 1 || x > right - m.room ? 'none' : '';
        break;
      }
      case 'tick':
        m.e.style.display = 'none';
    }
  }

  function clock(t, step) {
    if (t < 600) return t.toFixed(step < 1 ? 1 : 0) + ' s';
    const two = function (n) { return String(n).padStart(2, '0'); };
    const s = t % 60;
    return Math.floor(t / 3600) + ':' + two(Math.floor(t / 60) % 60) + (s || step < 60 ? ':' + (step < 1 ? s.toFixed(1).padStart(4, '0') : two(Math.round(s))) : '');
  }

  // The ticks of a zoomed view; those of the whole run stand in the drawing.
  function ticks() {
    document.querySelectorAll('.own').forEach(function (e) { e.remove(); });
    if (view === whole) return;
    const step = [0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21600, 86400].find(function (s) { return (view.to - view.from) / s < 13; }) || 86400;
    drawings.forEach(function (drawing) {
      const svg = drawing.querySelector('svg'), sample = svg.querySelector('text.tick'), line = svg.querySelector('line.grid[x1]');
      for (let k = Math.ceil(view.from / step); k * step <= view.to; k++) {
        if (!sample) continue;
        const text = sample.cloneNode();
        text.textContent = clock(k * step, step);
        const all = [text];
        if (line && line.getAttribute('y1') !== line.getAttribute('y2')) {
          const own = line.cloneNode();
          own.setAttribute('x1', unit(k * step));
          own.setAttribute('x2', unit(k * step));
          all.push(own);
        }
        text.setAttribute('x', unit(k * step));
        for (const e of all) {
          e.style.display = '';
          e.classList.add('own');
          sample.parentNode.insertBefore(e, sample);
        }
      }
    });
  }

  function look(from, to) {
    const least = Math.min(Math.max(4 * data.step, 1), whole.to - whole.from), length = Math.max(to - from, least);
    from = Math.min(Math.max((from + to - length) / 2, whole.from), Math.max(whole.to - length, whole.from));
    to = Math.min(from + length, whole.to);
    view = to - from > (whole.to - whole.from) * 0.999 ? whole : { from: from, to: to };
    const factor = (whole.to - whole.from) / (view.to - view.from);
    const shift = (view.from - whole.from) / (view.to - view.from) * data.width;
    for (const m of moving) place(m, factor, shift);
    ticks();
    document.getElementById('whole').disabled = view === whole;
    hide();
    remember();
  }

  // Zooms about the cursor when it is in view, else about the middle.
  function zoom(factor) {
    const middle = at > view.from && at < view.to ? at : (view.from + view.to) / 2;
    look(middle - (middle - view.from) / factor, middle + (view.to - middle) / factor);
  }

  function byKeys(drawing) {
    const svg = drawing.querySelector('svg'), box = svg.getBoundingClientRect();
    show(box.left + unit(at) / data.total * box.width, 0, drawing);
  }

  drawings.forEach(function (drawing) {
    const svg = drawing.querySelector('svg');
    let began = null, selection = null;
    const timeAt = function (e) {
      const box = svg.getBoundingClientRect();
      return view.from + ((e.clientX - box.left) / box.width * data.total - data.left) / data.width * (view.to - view.from);
    };
    const end = function () {
      began = null;
      if (selection) selection.remove();
      selection = null;
    };
    drawing.addEventListener('pointerdown', function (e) {
      const t = timeAt(e);
      if (e.button !== 0 || e.pointerType === 'touch' || t < view.from || t > view.to) return;
      began = { t: t, x: e.clientX };
    });
    drawing.addEventListener('pointermove', function (e) {
      const t = timeAt(e);
      if (began && Math.abs(e.clientX - began.x) > 5) {
        if (!selection) {
          selection = document.createElement('div');
          selection.className = 'selection';
          drawing.appendChild(selection);
        }
        const edge = drawing.getBoundingClientRect().left + drawing.clientLeft - drawing.scrollLeft;
        selection.style.left = Math.min(e.clientX, began.x) - edge + 'px';
        selection.style.width = Math.abs(e.clientX - began.x) + 'px';
      }
      if (t < view.from || t > view.to) return hide();
      at = t;
      show(e.clientX, e.clientY);
    });
    drawing.addEventListener('pointerup', function (e) {
      const from = began, dragged = selection;
      end();
      if (dragged) look(Math.min(from.t, timeAt(e)), Math.max(from.t, timeAt(e)));
    });
    drawing.addEventListener('pointerleave', function () { end(); hide(); });
    drawing.addEventListener('dblclick', function () { look(whole.from, whole.to); });
    drawing.addEventListener('blur', hide);
    drawing.addEventListener('keydown', function (e) {
      if (e.ctrlKey || e.metaKey || e.altKey) return;
      const way = { ArrowLeft: -1, ArrowRight: 1 }[e.key];
      if (way) {
        at = Math.min(Math.max(at + way * data.step * (e.shiftKey ? 10 : 1), data.from), data.to - data.step / 2);
        const length = view.to - view.from;
        if (at < view.from || at > view.to) look(at - length / 2, at + length / 2);
        byKeys(drawing);
      } else if (e.key === '+' || e.key === '=') zoom(2);
      else if (e.key === '-') zoom(0.5);
      else if (e.key === '0') look(whole.from, whole.to);
      else if (e.key === 'Escape') return hide();
      else return;
      e.preventDefault();
    });
  });

  function click(id, what) { document.getElementById(id).addEventListener('click', what); }
  document.getElementById('tools').hidden = false;
  click('closer', function () { zoom(2); });
  click('wider', function () { zoom(0.5); });
  click('whole', function () { look(whole.from, whole.to); });
  document.querySelectorAll('.locate').forEach(function (button) {
    const outage = button.closest('.outage');
    button.hidden = false;
    button.addEventListener('click', function () {
      const from = parseFloat(outage.dataset.from), to = parseFloat(outage.dataset.to), around = Math.max(2, to - from);
      at = from;
      look(from - around, to + around);
      const timeline = document.getElementById('timeline');
      timeline.scrollIntoView();
      timeline.focus({ preventScroll: true });
      byKeys(timeline);
    });
  });

  // The filter dims the rows of other groups (nodes, or compared subjects), and hides the outages of others and of other
  // classes.
  const chosen = function (id) {
    const list = document.getElementById(id);
    return list ? list.value : '';
  };
  function filter() {
    const group = chosen('group'), failure = chosen('class');
    document.querySelectorAll('.row').forEach(function (row) {
      row.classList.toggle('dim', group !== '' && row.dataset.group !== undefined && row.dataset.group !== group);
    });
    let shown = 0;
    const outages = document.querySelectorAll('.outage');
    outages.forEach(function (o) {
      o.hidden = (group !== '' && o.dataset.group !== group) || (failure !== '' && !o.dataset.classes.split(' ').includes(failure));
      if (!o.hidden) shown++;
    });
    const note = document.getElementById('filtered');
    remember();
    if (!note) return;
    note.hidden = shown === outages.length;
    note.textContent = shown + ' of ' + outages.length + ' shown by the filter above the time line.';
  }
  document.querySelectorAll('#tools select').forEach(function (list) { list.addEventListener('change', filter); });

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

  const markdown = document.getElementById('markdown');
  if (markdown) {
    const text = document.getElementById('snippet').content.textContent;
    markdown.hidden = false;
    markdown.addEventListener('click', function () {
      const select = function () {
        const area = document.createElement('textarea');
        area.value = text;
        markdown.after(area);
        area.select();
        markdown.textContent = document.execCommand('copy') ? 'Copied' : 'Press Ctrl+C';
        if (markdown.textContent === 'Copied') area.remove();
      };
      if (navigator.clipboard) navigator.clipboard.writeText(text).then(function () { markdown.textContent = 'Copied'; }, select);
      else select();
    });
  }

  // The address has the outage, the zoom and the filters, so that a link shows what its sender saw: #outage-2&from=20&to=40&node=node-1
  let linked = '', restoring = true;
  function remember() {
    if (restoring) return;
    const words = linked ? [linked] : [];
    if (view !== whole) words.push('from=' + view.from.toFixed(3), 'to=' + view.to.toFixed(3));
    for (const id of ['group', 'class']) if (chosen(id)) words.push(id + '=' + encodeURIComponent(chosen(id)));
    history.replaceState(null, '', '#' + words.join('&'));
  }
  // The end of a link may be cut off within a letter.
  function decoded(text) {
    try {
      return decodeURIComponent(text);
    } catch (e) {
      return '';
    }
  }
  function restore() {
    restoring = true;
    const words = location.hash.slice(1).split('&'), named = {};
    for (const w of words) named[w.split('=')[0]] = decoded(w.split('=').slice(1).join('='));
    for (const id of ['group', 'class']) {
      const list = document.getElementById(id);
      if (list) list.value = Array.from(list.options).some(function (o) { return o.value === named[id]; }) ? named[id] : '';
    }
    filter();
    const from = parseFloat(named.from), to = parseFloat(named.to);
    if (from < to) look(from, to);
    else look(whole.from, whole.to);
    linked = words.find(function (w) { return /^outage-\d+$/.test(w); }) || '';
    const outage = linked && document.getElementById(linked);
    if (outage) {
      outage.closest('.group').open = true;
      outage.open = true;
      outage.scrollIntoView();
    }
    restoring = false;
  }
  document.querySelectorAll('.outage').forEach(function (o) {
    o.querySelector('summary').addEventListener('click', function () {
      linked = o.open ? '' : o.id;
      remember();
    });
  });
  addEventListener('hashchange', restore);
  restore();

  // Of many outages a print has the first ones; long tables stay closed.
  addEventListener('beforeprint', function () {
    document.querySelectorAll('details.group').forEach(function (d) { d.open = true; });
    Array.from(document.querySelectorAll('details.outage')).slice(0, 2).forEach(function (d) { d.open = true; });
  });
})();
