import assert from "node:assert/strict";
import { test } from "node:test";
import { type Place, placeLabels } from "../src/timeline/labels";

const room = { left: 0, right: 500, height: 200, thickness: 10 };

/** overlaps are the pairs of texts that lie on each other, by looking at all pairs. */
function overlaps(lines: { length: number }[], places: (Place | undefined)[]): number {
	let n = 0;
	places.forEach((a, i) => {
		places.slice(0, i).forEach((b, j) => {
			const apart = !a || !b || Math.abs(a.left - b.left) >= room.thickness;
			n += Number(!apart && a.from < b.from + lines[j]!.length && b.from < a.from + lines[i]!.length);
		});
	});
	return n;
}

test("a text stands at the bottom left of its line, at the left end of the room at the right", () => {
	assert.deepEqual(placeLabels([{ x: 100, length: 50 }], room), [{ left: 90, from: 0 }]);
	assert.deepEqual(placeLabels([{ x: 4, length: 50 }], room), [{ left: 4, from: 0 }]);
});

test("a text goes where no line runs through it", () => {
	const places = placeLabels(
		[
			{ x: 100, length: 50 },
			{ x: 96, length: 50 },
		],
		room,
	);
	assert.deepEqual(places, [
		{ left: 100, from: 0 },
		{ left: 86, from: 0 },
	]);
});

test("four texts at one moment have a place each, the fifth has none", () => {
	const lines = Array.from({ length: 5 }, () => ({ x: 100, length: 90 }));
	const places = placeLabels(lines, room);
	assert.deepEqual(places, [
		{ left: 90, from: 0 },
		{ left: 100, from: 0 },
		{ left: 90, from: 100 },
		{ left: 100, from: 100 },
		undefined,
	]);
	assert.equal(overlaps(lines, places), 0);
});

test("a text goes below another where it fits", () => {
	const places = placeLabels(
		[
			{ x: 100, length: 90 },
			{ x: 96, length: 90 },
			{ x: 90, length: 90 },
		],
		{ ...room, right: 109 },
	);
	assert.deepEqual(
		places.map((place) => place?.from),
		[0, 100, 0],
	);
});

test("texts never lie on each other nor outside of the room", () => {
	let seed = 1;
	const random = (n: number) => {
		seed = (seed * 48271) % 0x7fffffff;
		return seed % n;
	};
	for (let round = 0; round < 500; round++) {
		const lines = Array.from({ length: 1 + random(40) }, () => ({ x: random(501), length: random(120) }));
		const places = placeLabels(lines, room);
		assert.equal(overlaps(lines, places), 0);
		places.forEach((place, i) => {
			assert.ok(!place || (place.left >= 0 && place.left + 10 <= 500 && place.from >= 0 && place.from + lines[i]!.length <= 200));
		});
		assert.ok(places[0], "the first has a place whatever comes after");
	}
});
