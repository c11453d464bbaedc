// Uses the page as a reader would, and leaves what went wrong as an attribute of the document.
(function () {
  const places = function () {
    return all('#timeline rect').map(function (r) { return Math.round(r.getAttribute('x')) + '+' + Math.round(r.getAttribute('width')) + r.style.display; }).join();
  };

  const before = places();
  check(!$('#tools').hidden && isWhole(), 'the tools are not offered');
  check(document.documentElement.scrollWidth <= innerWidth, 'the page is too wide');

  pointer('pointermove', 0.5);
  check(!$('#readout').hidden && $('#readout').textContent.includes(' s to +'), 'hovering tells nothing');
  check(new Set(all('.cursor').map(function (c) { return c.hidden + c.style.left; })).size === 1, 'the cursors are not linked');
  pointer('pointerdown', 0.5);
  for (const share of [0.52, 0.55, 0.6]) pointer('pointermove', share);
  check(all('.selection').length === 1, 'dragging shows nothing');
  pointer('pointerup', 0.6);
  check(!isWhole() && places() !== before && all('.selection').length === 0, 'dragging does not zoom');
  const ticks = all('#timeline text.own').map(function (t) { return t.textContent; });
  check(ticks.length > 3 && ticks.length < 14 && new Set(ticks).size === ticks.length, 'the ticks of a zoomed view: ' + ticks);
  key('0');
  check(isWhole() && places() === before && all('.own').length === 0, '0 does not show the whole run as before');
  key('+');
  key('+');
  check(!isWhole(), 'plus does not zoom');
  key('ArrowRight');
  check(!$('#readout').hidden, 'the arrow does not move the cursor');
  key('Escape');
  check($('#readout').hidden, 'Escape leaves the readout');
  key('-');
  key('-');
  check(isWhole() && places() === before, 'minus does not come back');
  $('#closer').click();
  check(!isWhole(), 'the button does not zoom');
  $('#whole').click();

  const outages = all('.outage');
  check(outages.length > 1, 'the page shows ' + outages.length + ' outages');
  outages[0].querySelector('summary').click();
  check(outages[0].open && outages[0].querySelectorAll('tbody tr').length > 0, 'an outage does not open');
  for (const o of all('details')) o.open = true;
  check(document.documentElement.scrollWidth <= innerWidth, 'with its details open the page is too wide');
  for (const o of all('details')) o.open = o === outages[0];
  outages[0].querySelector('.locate').click();
  check(!isWhole() && document.activeElement === $('#timeline'), 'an outage is not shown in the time line');
  check($('#readout').textContent.includes('dropped'), 'the cursor does not stand on the outage: ' + $('#readout').textContent);
  const choose = function (id, value) {
    $(id).value = value;
    $(id).dispatchEvent(new Event('change'));
    return outages.filter(function (o) { return !o.hidden; });
  };
  const node = outages[0].dataset.group;
  check(choose('#group', node).every(function (o) { return o.dataset.group === node; }), 'the filter leaves other nodes');
  check(all('.row.dim').length > 0 && all('.row.dim').every(function (r) { return r.dataset.group !== node; }), 'the filter dims the wrong rows');
  choose('#group', '');
  const failure = $('#class').options[1].value;
  const left = choose('#class', failure);
  check(left.length > 0 && left.every(function (o) { return o.dataset.classes.split(' ').includes(failure); }), 'the filter leaves other classes');
  check(choose('#class', '').length === outages.length && $('#filtered').hidden && all('.row.dim').length === 0, 'the filter cannot be undone');
  document.documentElement.setAttribute('data-faults', JSON.stringify(faults));
})();
