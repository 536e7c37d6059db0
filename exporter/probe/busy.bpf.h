// Busy time.
//
// Each stream is busy from its first launch to the synchronisation that ends its work. One that began before the last
// launch does not: another thread has launched meanwhile. A device is busy for a process while any of its streams is:
// `open` counts them, and the time from 0 to 1 and back to 0 is one span.

#pragma once
#include "layout.bpf.h"

static __always_inline u64 place_of(u64 handle)
{
	return handle ^ handle >> 5 ^ handle >> 12;
}

static __always_inline struct stream *known_stream(struct sums *sums, u64 handle)
{
	u64 first = place_of(handle);

	for (u64 i = 0; i < TRIES; i++) {
		struct stream *stream = &sums->streams[(first + i) % STREAMS];
		if (stream->handle == handle)
			return stream;
	}
	return NULL;
}

static __always_inline struct stream *any_stream(struct sums *sums, u64 handle)
{
	struct stream *stream = known_stream(sums, handle);
	u64 first = place_of(handle);

	if (stream)
		return stream;
	for (u64 i = 0; i < TRIES; i++) {
		stream = &sums->streams[(first + i) % STREAMS];
		u64 other = stream->handle;
		if (other && stream->since)
			continue;
		// free, or of a stream without work; another thread may just have put this stream here
		u64 seen = __sync_val_compare_and_swap(&stream->handle, other, handle);
		if (seen == other || seen == handle)
			return stream;
	}
	lose(FULL_STREAMS);
	return NULL;
}

// What was launched so far: tells which of two launches was first.
static __always_inline u64 works_of(struct sums *sums)
{
	return sums->launches + sums->graph_launches;
}

static __always_inline void begin_work(struct sums *sums, u64 handle)
{
	struct stream *stream = any_stream(sums, handle);

	if (!stream)
		return;
	stream->last = works_of(sums);
	if (stream->since)
		return;
	u64 now = bpf_ktime_get_ns();
	if (!__sync_val_compare_and_swap(&stream->since, 0, now))
		if (!__sync_fetch_and_add(&sums->open, 1))
			sums->open_since = now;
}

static __always_inline void tell_span(struct device_id *device, struct sums *sums)
{
	struct span span = {
		.device = *device,
		.begin = sums->span_begin,
		.end = sums->span_end,
		.active = sums->span_active,
	};

	if (bpf_ringbuf_output(&spans, &span, sizeof(span), BPF_RB_NO_WAKEUP))
		lose(FULL_SPANS);
	sums->span_begin = 0;
	sums->span_active = 0;
}

static __noinline int end_span(struct device_id *device, struct sums *sums, u64 begin, u64 now)
{
	if (!device || !sums)
		return 0;
	__sync_fetch_and_add(&sums->active_ns, now - begin);
	if (sums->span_begin && begin > sums->span_end + SPAN_NS)
		tell_span(device, sums);
	if (!sums->span_begin)
		sums->span_begin = begin;
	sums->span_end = now;
	sums->span_active += now - begin;
	if (now - sums->span_begin >= SPAN_NS)
		tell_span(device, sums);
	return 0;
}

static __always_inline void end_work(struct device_id *device, struct sums *sums, struct stream *stream, u64 now)
{
	if (!stream->since || !__sync_lock_test_and_set(&stream->since, 0))
		return;
	u64 begin = sums->open_since;
	if (__sync_fetch_and_add(&sums->open, -1) != 1 || !begin)
		return;
	// where another thread has begun work meanwhile, the time since then stays open
	__sync_val_compare_and_swap(&sums->open_since, begin, 0);
	end_span(device, sums, begin, now);
}

// Of a stream that had done what was launched on the device until there were `works` launches. Returns 0 where there is
// no such stream.
static __always_inline int end_stream(struct device_id *device, struct sums *sums, u64 handle, u64 works, u64 now)
{
	struct stream *stream = known_stream(sums, handle);

	if (!stream)
		return 0;
	if (stream->last <= works)
		end_work(device, sums, stream, now);
	return 1;
}

// A stream is of the device on which it was created. It may be waited for while the thread has another one.
static __noinline int end_stream_elsewhere(struct device_id *device, u64 handle, u64 now)
{
	if (!device || !handle)
		return 0;
	struct device_id other = *device;
	for (u32 i = 0; i < MOST_ORDINALS; i++) {
		other.ordinal = i;
		struct sums *sums = bpf_map_lookup_elem(&devices, &other);
		if (sums && end_stream(&other, sums, handle, -1, now))
			return 1;
	}
	return 0;
}

static __noinline int end_streams(struct device_id *device, struct sums *sums, u64 works, u64 now)
{
	if (!device || !sums)
		return 0;
	for (u32 i = 0; i < STREAMS; i++)
		if (sums->streams[i].last <= works)
			end_work(device, sums, &sums->streams[i], now);
	return 0;
}
