// A client on proton's C++ library that leaves fail-over to the library's own reconnecting:
//     failover QUEUE COUNT HOST:PORT...
// With one place it goes on with the other members that the broker tells of in its open. It sends, and sends again what
// was not confirmed; the second half it sends only when it has been connected again. It says `others N` once, how many it
// was told of, `at N` for each hundred confirmed, and `got N` when it has received that many different messages, which are all.

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
#include <set>
#include <string>
#include <vector>

namespace {

const size_t WINDOW = 20;

class Failover : public proton::messaging_handler {
  public:
    Failover(const std::string& queue, size_t count, const std::vector<std::string>& places)
        : queue_(queue), count_(count), places_(places) {}

    void on_container_start(proton::container& container) override {
        proton::reconnect_options often;
        often.delay(proton::duration(50)).max_delay(proton::duration(500));
        proton::connection_options options;
        options.reconnect(often).idle_timeout(proton::duration(4000)).sasl_allowed_mechs("ANONYMOUS");
        if (places_.size() > 1) options.failover_urls({places_.begin() + 1, places_.end()});
        container.connect(places_.front(), options);
    }

    // Again after each reconnecting, when the links of before are gone.
    void on_connection_open(proton::connection& connection) override {
        std::vector<std::string> others = told(connection);
        if (places_.size() == 1 && !others.empty())  // the library does not look there itself
            connection.update_options(proton::connection_options().failover_urls(others));
        if (!connection.reconnected()) std::cout << "others " << others.size() << std::endl;
        allowed_ = connection.reconnected() ? count_ : count_ / 2;
        again_.insert(again_.begin(), under_way_.begin(), under_way_.end());
        under_way_.clear();
        sender_ = connection.open_sender(queue_);
        if (confirmed_.size() == count_) receive(connection);
    }

    void on_sendable(proton::sender& sender) override {
        if (sender == sender_) go();
    }

    void on_tracker_accept(proton::tracker& tracker) override {
        if (tracker.sender() != sender_) return;
        std::string tag(tracker.tag());
        size_t number = std::stoul(tag);
        under_way_.erase(number);
        confirmed_.insert(number);
        if (confirmed_.size() % 100 == 0) std::cout << "at " << confirmed_.size() << std::endl;
        if (confirmed_.size() == count_) receive(tracker.connection());
        go();
    }

    void on_message(proton::delivery& delivery, proton::message& message) override {
        got_.insert(proton::coerce<uint64_t>(message.id()));
        if (got_.size() < count_ || done_) return;
        done_ = true;
        std::cout << "got " << got_.size() << std::endl;
        delivery.connection().close();
    }

    void on_transport_error(proton::transport& transport) override {
        std::cerr << "reconnecting: " << transport.error().what() << std::endl;
    }

    // What would end the connection for good.
    void on_connection_error(proton::connection& connection) override { fail(connection.error().what()); }
    void on_error(const proton::error_condition& error) override { fail(error.what()); }

    int status() const { return done_ && !failed_ ? 0 : 1; }

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

    void receive(proton::connection connection) {
        connection.open_receiver(queue_, proton::receiver_options().credit_window(50));
    }

    void fail(const std::string& why) {
        std::cout << "failed: " << why << std::endl;
        failed_ = true;
    }

    std::string queue_;
    size_t count_, next_ = 0, allowed_ = 0;
    std::vector<std::string> places_;
    std::deque<size_t> again_;
    std::set<size_t> under_way_, confirmed_, got_;
    proton::sender sender_;
    bool done_ = false, failed_ = false;
};

}  // namespace

int main(int argc, char** argv) {
    try {
        Failover client(argv[1], std::stoul(argv[2]), {argv + 3, argv + argc});
        proton::container(client, "failover").run();
        return client.status();
    } catch (const std::exception& error) {
        std::cout << "failed: " << error.what() << std::endl;
    }
    return 1;
}
