import assert from "node:assert/strict";
import { test } from "node:test";
import { bytes, clock, count, fixed, share, shorten, tickBytes, tickClocks } from "../src/units";
import golden from "./units.json";

test("sizes and counts are said as the Go side says them", () => {
	assert.ok(golden.bytes.length > 300 && golden.counts.length > 100);
	for (const [size, text] of golden.bytes as [number, string][]) {
		assert.equal(bytes(size), text, `${size} bytes`);
	}
	for (const [n, text] of golden.counts as [number, string][]) {
		assert.equal(count(n), text, `${n} things`);
	}
});

test("what lies halfway goes to the even digit", () => {
	assert.deepEqual(
		[0.5, 1.5, 2.5, -1.5, -2.5, 0.25].map((x) => fixed(x, 0)),
		["0", "2", "2", "-2", "-2", "0"],
	);
	assert.deepEqual(
		[1.125, 1.375, 1.005, -1.125, -1.375].map((x) => fixed(x, 2)),
		["1.12", "1.38", "1.00", "-1.12", "-1.38"],
	);
});

test("sizes along an axis share a unit and can be told apart", () => {
	assert.deepEqual(tickBytes([0, 2 ** 28, 2 ** 29, 2 ** 30]), ["0.00 GiB", "0.25 GiB", "0.50 GiB", "1.00 GiB"]);
	assert.deepEqual(tickBytes([0, 2 ** 29, 2 ** 30]), ["0.0 GiB", "0.5 GiB", "1.0 GiB"]);
	assert.deepEqual(tickBytes([2 ** 20, 2 ** 21]), ["1 MiB", "2 MiB"]);
	assert.deepEqual(tickBytes([0]), ["0 B"]);
	for (let power = 0; power < 45; power++) {
		const ticks = tickBytes([3, 4, 5, 6].map((n) => n * 2 ** power));
		assert.equal(new Set(ticks).size, 4, ticks.join());
	}
});

test("moments are minutes and seconds, in long traces hours too", () => {
	assert.equal(clock(65, 120), "1:05");
	assert.equal(clock(59.6, 120), "1:00");
	assert.equal(clock(3599, 3599), "59:59");
	assert.equal(clock(65, 3600), "0:01:05");
	assert.equal(clock(7384, 9000), "2:03:04");
	assert.deepEqual(tickClocks([0, 600], 9000), ["0:00", "0:10"]);
	assert.deepEqual(tickClocks([0, 30], 9000), ["0:00:00", "0:00:30"]);
	assert.deepEqual(tickClocks([0, 30], 100), ["0:00", "0:30"]);
});

test("shares have a digit that counts, and of nothing are nothing", () => {
	assert.deepEqual(
		[share(1, 3), share(1, 1), share(2, 1e4), share(0, 5), share(1, 0)],
		["33.3%", "100.0%", "0.02%", "0.0%", "0.0%"],
	);
});

test("long texts are cut between characters", () => {
	assert.equal(shorten("abc", 3), "abc");
	assert.equal(shorten("abcd", 3), "ab…");
	assert.equal(shorten("😀😀😀", 3), "😀😀😀");
	assert.equal(shorten("😀😀😀😀", 3), "😀😀…");
	assert.equal([...shorten("x".repeat(10_000), 60)].length, 60);
});
