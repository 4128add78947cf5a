// The threads that all kernels of a process share. Compiled into a library of its own, so that there is one pool.
#include <unistd.h>

#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

namespace {
struct Pool {
  std::mutex callers;  // one grid at a time has the threads
  std::mutex lock;
  std::condition_variable begin, finished;
  std::vector<std::thread> threads;
  pid_t process = getpid();
  void (*work)(void*) = nullptr;
  void* argument = nullptr;
  unsigned round = 0;
  int wanted = 0, left = 0;

  void serve(int index) {
    unsigned seen = 0;
    for (;;) {
      std::unique_lock<std::mutex> guard(lock);
      begin.wait(guard, [&] { return round != seen; });
      seen = round;
      if (index >= wanted) continue;
      guard.unlock();
      work(argument);
      guard.lock();
      if (--left == 0) finished.notify_one();
    }
  }

  void run(int count, void (*work_)(void*), void* argument_) {
    {
      std::unique_lock<std::mutex> guard(lock);
      while ((int)threads.size() < count - 1) {
        const int index = (int)threads.size();
        // It gets the lock only once the round below is set, so it joins exactly that one.
        threads.emplace_back([this, index] { serve(index); });
      }
      work = work_;
      argument = argument_;
      wanted = left = count - 1;
      round++;
    }
    begin.notify_all();
    work_(argument_);
    std::unique_lock<std::mutex> guard(lock);
    finished.wait(guard, [&] { return left == 0; });
  }
};

Pool* pool() {
  static std::mutex making;
  static Pool* current = nullptr;
  std::lock_guard<std::mutex> guard(making);
  // After a fork the child has none of its parent's threads: it makes its own pool and leaves the old one be.
  if (!current || current->process != getpid()) current = new Pool;
  return current;
}
}  // namespace

extern "C" __attribute__((visibility("default"))) void spool_parallel_for(int count, void (*work)(void*),
                                                                          void* argument) {
  Pool* all = pool();
  if (count > 1 && all->callers.try_lock()) {
    all->run(count, work, argument);
    all->callers.unlock();
  } else {
    work(argument);  // another thread's grid has the pool: this one does its own
  }
}
