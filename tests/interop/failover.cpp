// A client on proton's C++ library that uses the library's reconnection; test_failover.py describes its commands and
// output. If only one address is given, it reconnects to the members that the broker announces in its open.

#include <proton/connection.hpp>
#include <proton/connection_options.hpp>
#include <proton/container.hpp>
#include <proton/delivery.hpp>
#include <proton/duration.hpp>
#include <proton/error_condition.hpp>
#include <proton/map.hpp>
#include <proton/message.hpp>
#include <proton/messaging_handler.hpp>
#include <proton/receiver_options.hpp>
#include <proton/reconnect_options.hpp>
#include <proton/sender.hpp>
#include <proton/symbol.hpp>
#include <proton/tracker.hpp>
#include <proton/transport.hpp>
#include <proton/types.hpp>

#include <deque>
#include <iostream>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

namespace {

const size_t WINDOW = 20;
const size_t KEPT = 10;

class Failover : public proton::messaging_handler {
  public:
    Failover(const std::string& queue, size_t count, const std::vector<std::string>& places)
        : queue_(queue), count_(count), places_(places) {}

    void on_container_start(proton::container& container) override {
        proton::reconnect_options often;
        often.delay(proton::duration(50)).max_delay(proton::duration(500));
        proton::connection_options options;
        options.reconnect(often).idle_timeout(proton::duration(20000)).sasl_allowed_mechs("ANONYMOUS");
        if (places_.size() > 1) options.failover_urls({places_.begin() + 1, places_.end()});
        container.connect(places_.front(), options);
    }

    // Also called after each reconnection, when the library has opened the earlier links again.
    void on_connection_open(proton::connection& connection) override {
        std::vector<std::string> others = told(connection);
        if (places_.size() == 1 && !others.empty())  // the library does not use the announced members itself
            connection.update_options(proton::connection_options().failover_urls(others));
        std::cout << "open " << others.size() << std::endl;
        allowed_ = connection.reconnected() ? count_ : count_ / 2;
        again();
        if (!connection.reconnected()) begin(connection);
    }

    void on_transport_error(proton::transport& transport) override {
        std::cerr << "reconnecting: " << transport.error().what() << std::endl;
    }

    // Errors that end the connection permanently.
    void on_connection_error(proton::connection& connection) override { fail(connection.error().what()); }
    void on_error(const proton::error_condition& error) override { fail(error.what()); }

    int status() const { return done_ && !failed_ ? 0 : 1; }

  protected:
    virtual void begin(proton::connection connection) = 0;
    virtual void again() = 0;  // drops deliveries in flight on the previous connection

    void done(proton::connection connection) {
        done_ = true;
        connection.close();
    }

    std::string queue_;
    size_t count_, allowed_ = 0;

  private:
    static std::vector<std::string> told(proton::connection& connection) {
        std::vector<std::string> found;
        auto properties = connection.properties();
        auto list = properties.find("failover-server-list");
        if (list == properties.end()) return found;
        for (const auto& one : proton::get<std::vector<proton::value>>(list->second)) {
            std::map<proton::symbol, proton::value> place;
            proton::get(one, place);
            found.push_back(proton::get<std::string>(place.at("network-host")) + ":" +
                            std::to_string(proton::get<uint32_t>(place.at("port"))));
        }
        return found;
    }

    void fail(const std::string& why) {
        std::cout << "failed: " << why << std::endl;
        failed_ = true;
    }

    std::vector<std::string> places_;
    bool done_ = false, failed_ = false;
};

class Send : public Failover {
  public:
    using Failover::Failover;

    void begin(proton::connection connection) override { sender_ = connection.open_sender(queue_); }

    void again() override {
        again_.insert(again_.begin(), under_way_.begin(), under_way_.end());
        under_way_.clear();
    }

    void on_sendable(proton::sender&) override { go(); }

    void on_tracker_accept(proton::tracker& tracker) override {
        under_way_.erase(std::stoul(std::string(tracker.tag())));
        if (++confirmed_ % 100 == 0) std::cout << "at " << confirmed_ << std::endl;
        if (confirmed_ == count_) done(tracker.connection());
        go();
    }

  private:
    void go() {
        while (sender_.credit() > 0 && under_way_.size() < WINDOW && (!again_.empty() || next_ < allowed_)) {
            size_t number = again_.empty() ? next_++ : again_.front();
            if (!again_.empty()) again_.pop_front();
            proton::message message(std::string(100, 'x'));
            message.id(uint64_t(number));
            message.durable(true);
            sender_.send(message, proton::binary(std::to_string(number)));
            under_way_.insert(number);
        }
    }

    size_t next_ = 0, confirmed_ = 0;
    std::deque<size_t> again_;
    std::set<size_t> under_way_;
    proton::sender sender_;
};

class Receive : public Failover {
  public:
    using Failover::Failover;

    void begin(proton::connection connection) override {
        connection.open_receiver(queue_, proton::receiver_options().credit_window(WINDOW).auto_accept(false));
    }

    void again() override { kept_.clear(); }

    void on_message(proton::delivery& delivery, proton::message& message) override {
        auto number = proton::coerce<uint64_t>(message.id());
        bool first = message.first_acquirer() && message.delivery_count() == 0;
        std::cout << "got " << number << (first ? " first" : " again") << std::endl;
        got_.insert(number);
        kept_.push_back(delivery);
        bool all = got_.size() == count_;
        while (kept_.size() > (all ? 0 : KEPT)) {
            kept_.front().accept();
            kept_.pop_front();
        }
        if (all) done(delivery.connection());
    }

  private:
    std::set<uint64_t> got_;
    std::deque<proton::delivery> kept_;
};

}  // namespace

int main(int argc, char** argv) {
    try {
        std::string verb(argv[1]), queue(argv[2]);
        size_t count = std::stoul(argv[3]);
        std::vector<std::string> places(argv + 4, argv + argc);
        std::unique_ptr<Failover> client;
        if (verb == "send") client = std::make_unique<Send>(queue, count, places);
        else client = std::make_unique<Receive>(queue, count, places);
        proton::container(*client, "failover").run();
        return client->status();
    } catch (const std::exception& error) {
        std::cout << "failed: " << error.what() << std::endl;
    }
    return 1;
}
