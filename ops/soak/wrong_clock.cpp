// Preloaded into a process: its time of day is SPOOL_SOAK_CLOCK_SECONDS off, while steady clocks and sleeps stay what
// they are, as on a machine whose date is wrong. libfaketime 0.9.10 cannot do that to Python 3.11: with steady clocks
// left alone every time.sleep() fails, and otherwise a wait for a lock lasts as long as the clock is off.
#include <cstdlib>
#include <ctime>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

static long seconds_off() {
  static const long seconds = [] {
    const char* text = getenv("SPOOL_SOAK_CLOCK_SECONDS");
    return text ? atol(text) : 0;
  }();
  return seconds;
}

extern "C" int clock_gettime(clockid_t clock, timespec* now) noexcept {
  const int result = (int)syscall(SYS_clock_gettime, clock, now);
  if (result == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) now->tv_sec += seconds_off();
  return result;
}

extern "C" int gettimeofday(timeval* now, void*) noexcept {
  timespec exact;
  const int result = clock_gettime(CLOCK_REALTIME, &exact);
  if (now) *now = {exact.tv_sec, exact.tv_nsec / 1000};
  return result;
}

extern "C" time_t time(time_t* into) noexcept {
  timespec exact;
  clock_gettime(CLOCK_REALTIME, &exact);
  if (into) *into = exact.tv_sec;
  return exact.tv_sec;
}
